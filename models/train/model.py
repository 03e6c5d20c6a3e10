# SPDX-License-Identifier: MIT
"""Qwen3-MoE in PyTorch: small, float32, no cache; for training and checks.

Tokens are sorted by expert, so that each expert is one matrix product over
its rows, without padding; both passes gather instead of scattering, which a
CPU does much faster.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Shape:
    vocab: int = 1024
    hidden: int = 128
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 24
    used: int = 4           # experts per token
    width: int = 32         # of one expert
    theta: float = 10000.0
    eps: float = 1e-6
    positions: int = 1024
    renormalize: bool = True
    tied: bool = True


class Norm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.eps)


def rotary_table(shape):
    half = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
    angles = torch.outer(torch.arange(shape.positions).float(),
                         1 / shape.theta ** half)
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Dispatch(torch.autograd.Function):
    """Rows of tokens to rows sorted by expert."""

    @staticmethod
    def forward(ctx, x, token, row):
        ctx.save_for_backward(row)
        return x[token]

    @staticmethod
    def backward(ctx, grad):
        row, = ctx.saved_tensors
        return grad[row.flatten()].view(*row.shape, -1).sum(1), None, None


class Combine(torch.autograd.Function):
    """Rows sorted by expert back to their tokens, weighted."""

    @staticmethod
    def forward(ctx, y, weight, order, row):
        y = y[row.flatten()].view(*row.shape, -1)
        ctx.save_for_backward(y, weight, order)
        # Not einsum: it becomes one tiny product per token.
        return (y * weight[..., None]).sum(1)

    @staticmethod
    def backward(ctx, grad):
        y, weight, order = ctx.saved_tensors
        by_row = weight.flatten()[order]
        return (grad[order // y.shape[1]] * by_row[:, None],
                (y * grad[:, None]).sum(-1), None, None)


class GroupedProduct(torch.autograd.Function):
    """x @ weight[e].T for each expert's rows of x."""

    @staticmethod
    def forward(ctx, x, weight, bounds):
        ctx.save_for_backward(x, weight)
        ctx.bounds = bounds
        y = x.new_empty(len(x), weight.shape[1])
        for w, (begin, end) in zip(weight, bounds):
            torch.mm(x[begin:end], w.t(), out=y[begin:end])
        return y

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x = torch.empty_like(x)
        grad_weight = torch.empty_like(weight)
        for e, (begin, end) in enumerate(ctx.bounds):
            part = grad[begin:end]
            torch.mm(part, weight[e], out=grad_x[begin:end])
            grad_weight[e] = part.t() @ x[begin:end]
        return grad_x, grad_weight, None


class Experts(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        rows = shape.experts * shape.width
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.gate = nn.Linear(shape.hidden, rows, bias=False)
        self.up = nn.Linear(shape.hidden, rows, bias=False)
        self.down = nn.Linear(rows, shape.hidden, bias=False)

    def forward(self, x):
        logits = self.router(x)
        chance = logits.softmax(-1)
        weight, chosen = chance.topk(self.shape.used, -1)
        if self.shape.renormalize:
            weight = weight / weight.sum(-1, keepdim=True)
        self.route = logits, chance, chosen     # for the balance loss
        return self.run(x, weight, chosen)

    @torch.no_grad()
    def layout(self, chosen):
        """Sorts the (token, choice) pairs by expert: the order, the row that
        each pair got, and each expert's first and last row."""
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        row = torch.empty_like(order)
        row[order] = torch.arange(len(order))
        ends = torch.bincount(flat, minlength=self.shape.experts).cumsum(0)
        ends = ends.tolist()
        return order, row.view_as(chosen), list(zip([0] + ends, ends))

    def run(self, x, weight, chosen):
        s = self.shape
        order, row, bounds = self.layout(chosen)
        x = Dispatch.apply(x, order // s.used, row)

        def product(x, matrices):
            return GroupedProduct.apply(x, matrices, bounds)
        gate, up = (m.weight.view(s.experts, s.width, s.hidden)
                    for m in (self.gate, self.up))
        down = self.down.weight.view(s.hidden, s.experts, s.width)
        h = F.silu(product(x, gate)) * product(x, up)
        y = product(h, down.transpose(0, 1))
        return Combine.apply(y, weight, order, row)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        q, kv = (n * shape.head_dim for n in (shape.heads, shape.kv_heads))
        self.q_proj = nn.Linear(shape.hidden, q, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.o_proj = nn.Linear(q, shape.hidden, bias=False)
        self.q_norm = Norm(shape.head_dim, shape.eps)
        self.k_norm = Norm(shape.head_dim, shape.eps)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape

        def heads(y):
            return y.view(batch, length, -1, self.shape.head_dim)
        q = self.q_norm(heads(self.q_proj(x))).transpose(1, 2)
        k = self.k_norm(heads(self.k_proj(x))).transpose(1, 2)
        v = heads(self.v_proj(x)).transpose(1, 2)
        q, k = rotate(q, cos[:length], sin[:length]), rotate(
            k, cos[:length], sin[:length])
        group = self.shape.heads // self.shape.kv_heads
        k, v = (y.repeat_interleave(group, 1) for y in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_norm = Norm(shape.hidden, shape.eps)
        self.attention = Attention(shape)
        self.expert_norm = Norm(shape.hidden, shape.eps)
        self.experts = Experts(shape)

    def forward(self, x, cos, sin):
        x = x + self.attention(self.input_norm(x), cos, sin)
        flat = self.expert_norm(x).flatten(0, 1)
        return x + self.experts(flat).view_as(x)


class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden, shape.eps)
        self.head = (None if shape.tied else
                     nn.Linear(shape.hidden, shape.vocab, bias=False))
        # Buffers would end up in the weights file.
        self.cos, self.sin = rotary_table(shape)

    def initialize(self):
        for name, weight in self.named_parameters():
            if weight.dim() < 2:
                continue
            nn.init.normal_(weight, 0, 0.05 if "embed" in name else 0.04)
            if name.endswith(("o_proj.weight", "down.weight")):
                weight.data /= math.sqrt(2 * self.shape.layers)
        return self

    def hidden(self, ids):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.norm(x)

    def logits(self, hidden):
        head = self.embed if self.head is None else self.head
        return F.linear(hidden, head.weight)

    def forward(self, ids):
        return self.logits(self.hidden(ids))
