// SPDX-License-Identifier: MIT
//
// Writes what Hugging Face's JavaScript tokenizers make of goldens/texts.inp.
//
// Usage: node make_goldens.mjs TOKENIZER.json > goldens/NAME.out
// Needs the npm package @huggingface/tokenizers (made with 0.2.0).
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Tokenizer } from "@huggingface/tokenizers";

const here = dirname(fileURLToPath(import.meta.url));
const texts = readFileSync(join(here, "goldens/texts.inp"), "utf8");
const json = JSON.parse(readFileSync(process.argv[2], "utf8"));
const tokenizer = new Tokenizer(json, {});

for (const text of texts.split("\n__ggml_vocab_test__\n")) {
  const { ids } = tokenizer.encode(text, { add_special_tokens: false });
  console.log(ids.join(" "));
}
