# SPDX-License-Identifier: MIT
"""The emulated board: the emulator process, QEMU and what runs in the guest.

One Board is one boot. It owns a run directory and two child processes, and
whatever way it is left, all three go. Runs in the toolbox.

    with Board(arch="arm64", command="lspci -nn") as board:
        status = board.wait()

Tests that only want a command's results have run_on_board(); those that talk
to a server in the guest give the guest's output a thread: board.background().
"""

import hashlib
import io
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from disk import Disk

TREE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.abspath(__file__))))
VM = os.path.join(TREE, "emulator", "vm")

TIMED_OUT = 124
BOOT_FAILED = 125

ARCHES = {
    "arm64": {
        "deb": "arm64",
        "build": "arm64",
        "libs": "/usr/lib/aarch64-linux-gnu",
        "qemu": "qemu-system-aarch64",
        # The named core boots faster than "max" under emulation.
        "machine": ["-M", "virt,gic-version=3,memory-backend=ram",
                    "-cpu", "cortex-a72"],
        "console": "ttyAMA0",
    },
    "x86_64": {
        "deb": "amd64",
        "build": "host",
        "libs": "/usr/lib/x86_64-linux-gnu",
        "qemu": "qemu-system-x86_64",
        "machine": ["-M", "q35,memory-backend=ram", "-cpu", "max"],
        "console": "ttyS0",
    },
}


class BoardError(Exception):
    """Something that keeps the board from running, said in one line."""


def parse_size(text):
    """Bytes of a size such as 2G or 512M."""
    units = {"K": 10, "M": 20, "G": 30, "T": 40}
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() \
        else (text, "M")
    if unit not in units or not number.isdigit() or int(number) == 0:
        raise BoardError(f"not a memory size: {text!r}; write 2G or 2048M")
    return int(number) << units[unit]


def low_memory(arch, mem):
    """Where the machine's memory below 4 GiB is: first byte, bytes."""
    if arch == "arm64":
        return 1 << 30, min(mem, 3 << 30)
    # q35 keeps its own addresses free from 2 GiB on, if it must make a gap.
    # The first 16 MiB are a zone of their own.
    return 16 << 20, (mem if mem < 0xb0000000 else 2 << 30) - (16 << 20)


def pool_place(arch, mem):
    """How much of the memory is the NPU's contiguous area, and where: bytes,
    and the range of addresses that it is to lie in.

    Half of a small guest; three quarters of a board, as the product has it
    (24 of 32 GiB). Whole region windows, which are 256 MiB, where it has
    some. The kernel wants it in one zone, so not across 4 GiB, and something
    of that zone for itself.
    """
    window = 256 << 20
    size = mem * 3 // 4 if mem >= 8 << 30 else mem // 2
    start, room = low_memory(arch, mem)
    high = mem - room - (start if arch == "x86_64" else 0)
    if high - window >= mem // 2:
        start, room = 4 << 30, high
    if room > 2 * window:
        size = min(size, room - window)
    return size // window * window or size, start, start + room


class Board:
    """One boot of the emulated board. See the module's text."""

    def __init__(self, arch="arm64", mem="2G", smp=2, kargs="", emu_args="",
                 forwards=(), timeout=600, command=None, emulator=True,
                 modparams="", disk=None, disk_mb_s=None, disk_errors=(),
                 results=None, stdout=None, stderr=None):
        if arch not in ARCHES:
            raise BoardError(f"unknown ARCH={arch}; known: "
                             + ", ".join(ARCHES))
        self.arch = arch
        self.target = ARCHES[arch]
        self.mem = parse_size(mem)
        self.smp = smp
        self.kargs = kargs
        self.emu_args = shlex.split(emu_args)
        self.forwards = forwards
        self.timeout = timeout
        self.command = command
        self.emulator = emulator
        self.modparams = modparams
        self.disk_size = disk
        self.disk_mb_s = disk_mb_s
        self.disk_errors = disk_errors
        self.disk = None	# a Disk, once it runs
        self.results = results or os.path.join(TREE, "build", "results", arch)
        self.out = {"m6.stdout": stdout or sys.stdout.buffer,
                    "m6.stderr": stderr or sys.stderr.buffer}
        self.version = self._read(f"/etc/m6/kernel-{self.target['deb']}")
        self.children = []
        self.status = None
        self.dmesg = b""
        self.dir = None
        self.began = None
        self.emulator_process = self.qemu = None
        self._ports = {}
        self._status_text = b""
        self._terminal = None
        self._stopping = False
        self._thread = None

    # Starting

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()
        return False

    def start(self):
        """Start the emulator and QEMU; returns before the guest is up."""
        self.began = time.monotonic()
        self.dir = tempfile.mkdtemp(prefix="m6-")
        os.makedirs(self.results, exist_ok=True)
        try:
            if self.emulator:
                self._start_emulator()
            self._start_qemu()
        except BaseException:
            self.stop()
            raise

    def _spawn(self, argv, log, **kwargs):
        # The kernel ends the children of a parent that was killed outright.
        argv = ["setpriv", "--pdeathsig", "KILL", "--"] + argv
        with open(self.path(log), "wb") as stream:
            kwargs.setdefault("stdin", subprocess.DEVNULL)
            kwargs.setdefault("stdout", stream)
            kwargs.setdefault("stderr", stream)
            child = subprocess.Popen(argv, **kwargs)
        self.children.append(child)
        return child

    def _start_emulator(self):
        binary = os.environ.get("M6_EMULATOR") or os.path.join(
            TREE, "build", "host", "emulator", "m6-emulator")
        if not os.access(binary, os.X_OK):
            raise BoardError(f"no emulator at {binary}; run make first, or "
                             "boot without it: --no-emulator")
        ready, told = os.pipe()
        # Its own session, so that Ctrl-C reaches it through us, in order.
        child = self._spawn(
            [binary, "--socket", self.path("npu.sock"),
             "--ready-fd", str(told), "--log-file",
             self.path("emulator.log")] + self.emu_args,
            "emulator.out", pass_fds=(told,), start_new_session=True)
        os.close(told)
        with os.fdopen(ready, "rb") as pipe:
            if not select.select([pipe], [], [], 30)[0] or not pipe.read(1):
                child.poll()
                raise BoardError("the emulator did not start:\n" + self.tail(
                    "emulator.out") + self.tail("emulator.log"))
        self.emulator_process = child

    def _start_qemu(self):
        argv = [self.target["qemu"], "-nodefaults", "-no-reboot",
                "-name", f"m6-{self.arch}", "-display", "none"]
        argv += self._machine_args()
        argv += self._kernel_args()
        # Before the others, which take whatever addresses are free.
        if self.emulator:
            argv += self._npu_args()
        argv += self._device_args()
        # Ctrl-C is for the guest's shell, or for us to end things in order.
        kwargs = {"start_new_session": True}
        if self.command is None:
            kwargs = {"stdin": None, "stdout": None}
            self._terminal = self._terminal_settings()
        listeners = self._listen()
        self.qemu = self._spawn(argv, "qemu.log", **kwargs)
        self._accept(listeners)

    # The command line of QEMU

    def _machine_args(self):
        accel = os.environ.get("M6_ACCEL", "tcg")
        return self.target["machine"] + [
            "-accel", accel, "-smp", str(self.smp), "-m",
            f"{self.mem >> 20}M", "-object",
            f"memory-backend-memfd,id=ram,size={self.mem},share=on"]

    def _kernel_args(self):
        # Zeroing everything that is allocated would touch a whole pool: half
        # a minute for 4 GiB. The driver clears what it hands out.
        append = [f"console={self.target['console']}", "panic=-1",
                  "init_on_alloc=0", "loglevel=5", "rdinit=/init"]
        args = ["-kernel", f"/usr/lib/modules/{self.version}/vmlinuz",
                "-initrd", self._initrd()]
        if self.arch == "arm64":
            args += ["-dtb", self._device_tree()]
            # Page-table isolation, for a core that does not leak: emulated,
            # it makes a system call six times as slow.
            append.append("kpti=off")
        elif self.emulator:
            size, start, end = pool_place(self.arch, self.mem)
            # The whole system's area, so others take some of it.
            size = max(size, min(size + (1 << 30), end - start - (1 << 30)))
            append.append(f"cma={size >> 20}M@{start:#x}-{end:#x}")
            # At random the kernel would put itself in the way now and then.
            append.append("nokaslr")
        append += [self.kargs]
        return args + ["-append", " ".join(append).strip()]

    def _device_args(self):
        def share(path, tag, mode):
            return ["-fsdev", f"local,id={tag},path={path},security_model="
                    f"{mode}", "-device",
                    f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

        args = ["-serial", f"file:{self.path('console.log')}",
                "-device", "virtio-rng-pci", "-device", "virtio-serial-pci"]
        args += share(TREE, "src", "none,readonly=on")
        args += share(self.target["libs"], "lib", "none,readonly=on")
        args += share(self.results, "results", "none")
        if os.environ.get("M6_DATA"):
            args += share(os.environ["M6_DATA"], "data", "none,readonly=on")
        net = "user,id=net"
        for host, guest in self.forwards:
            net += f",hostfwd=tcp:127.0.0.1:{host}-10.0.2.15:{guest}"
        args += ["-netdev", net, "-device",
                 "virtio-net-pci,netdev=net,romfile="]
        if self.disk_size:
            image = self.path("disk.img")
            with open(image, "wb") as stream:
                stream.truncate(parse_size(self.disk_size))
            self._tool(["mkfs.ext4", "-q", "-F", image])
            self.disk = Disk(image, self.path("disk.sock"), self.disk_mb_s,
                             self.disk_errors)
            args += self.disk.qemu_args()
        if self.command is None:
            args += ["-chardev", "stdio,id=tty,signal=off",
                     "-device", "virtconsole,chardev=tty"]
        for name in self._port_names():
            args += ["-chardev", f"socket,id={name},path={self.path(name)}",
                     "-device", f"virtserialport,chardev={name},name={name}"]
        return args

    def _npu_args(self):
        # Behind a root port the link has a partner, so that its speed and
        # width show as on a board. The overlay names this address.
        return ["-device", "pcie-root-port,id=npuport,addr=0x8,chassis=8,"
                "slot=8,x-speed=16,x-width=4",
                "-device", '{"driver":"vfio-user-pci","id":"npu0",'
                '"bus":"npuport","socket":{"type":"unix","path":"'
                + self.path("npu.sock") + '"}}']

    def _initrd(self):
        """The cached initramfs, and after it a second one for this boot."""
        made = subprocess.run([os.path.join(VM, "mkinitramfs"), self.arch],
                              stdout=subprocess.PIPE, check=False, text=True)
        if made.returncode:
            raise BoardError("cannot make the initramfs; see above")
        extra = os.path.join(self.dir, "boot")
        os.makedirs(os.path.join(extra, "m6"))
        env = {"M6_ARCH": self.arch, "M6_BUILD": self.target["build"],
               "M6_TIME": str(int(time.time())),
               "M6_MODPARAMS": self.modparams, "M6_DISK": self.disk_size or "",
               "M6_DATA": "/src-data" if os.environ.get("M6_DATA") else ""}
        if self.command is None and sys.stdin.isatty():
            size = os.get_terminal_size(sys.stdin.fileno())
            env.update(TERM=os.environ.get("TERM", "linux"))
            if size.lines and size.columns:
                env.update(M6_COLUMNS=str(size.columns),
                           M6_ROWS=str(size.lines))
        with open(os.path.join(extra, "m6", "env"), "w") as stream:
            for key, value in env.items():
                stream.write(f"export {key}={shlex.quote(value)}\n")
        if self.command is not None:
            with open(os.path.join(extra, "m6", "command"), "w") as stream:
                stream.write(self.command + "\n")
        image = self.path("initrd")
        with open(image, "wb") as stream:
            with open(made.stdout.strip(), "rb") as base:
                shutil.copyfileobj(base, stream)
            stream.write(b"\0" * (-stream.tell() % 4))
            stream.flush()
            subprocess.run("find m6 | cpio --quiet -o -H newc -R 0:0",
                           shell=True, cwd=extra, stdout=stream, check=True)
        return image

    def _device_tree(self):
        """QEMU's own tree for this machine with the board's overlay on it."""
        dts = os.path.join(TREE, "dts")
        size, start, end = pool_place(self.arch, self.mem)
        if not self.emulator:
            size = 64 << 20
        pool = [f"-DM6_POOL_SIZE={size:#x}", f"-DM6_POOL_START={start:#x}",
                f"-DM6_POOL_RANGE={end - start:#x}"]
        machine = self._machine_args()
        key = hashlib.sha256(repr((machine, pool)).encode())
        for name in ("compile", "m6-npu-vm.dtso", "m6-npu.dtsi"):
            with open(os.path.join(dts, name), "rb") as stream:
                key.update(stream.read())
        cache = os.environ.get("M6_VM_CACHE", "/cache/vm")
        result = os.path.join(cache, f"{key.hexdigest()[:16]}.dtb")
        if os.path.exists(result):
            return result
        os.makedirs(cache, exist_ok=True)
        base, plugin = self.path("virt.dtb"), self.path("npu.dtbo")
        machine[1] += f",dumpdtb={base}"
        self._tool([self.target["qemu"], "-nodefaults", "-display", "none"]
                   + machine)
        self._tool([os.path.join(dts, "compile"),
                    os.path.join(dts, "m6-npu-vm.dtso"), plugin] + pool)
        self._tool(["fdtoverlay", "-i", base, "-o", self.path("board.dtb"),
                    plugin])
        shutil.move(self.path("board.dtb"), result + f".{os.getpid()}")
        os.rename(result + f".{os.getpid()}", result)
        return result

    @staticmethod
    def _tool(argv):
        done = subprocess.run(argv, stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)
        if done.returncode:
            raise BoardError(f"{argv[0]} failed: " + done.stderr.decode())

    # Talking with the guest

    def _port_names(self):
        names = ("m6.dmesg", "m6.status")
        if self.command is not None:
            names = ("m6.stdout", "m6.stderr", "m6.signal") + names
        return names

    def _listen(self):
        listeners = {}
        for name in self._port_names():
            listeners[name] = socket.socket(socket.AF_UNIX)
            listeners[name].bind(self.path(name))
            listeners[name].listen(1)
        return listeners

    def _accept(self, listeners):
        for name, listener in listeners.items():
            with listener:
                listener.settimeout(0.2)
                self._ports[name] = self._accept_one(listener)

    def _accept_one(self, listener):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                return listener.accept()[0]
            except TimeoutError:
                if self.qemu.poll() is not None:
                    break
        raise BoardError("QEMU did not start:\n" + self.tail("qemu.log"))

    def signal(self, name):
        """Send a signal ("TERM") to the command in the guest."""
        self._ports["m6.signal"].sendall(name.encode() + b"\n")

    def pump(self, seconds):
        """Pass on output for a while; true while the guest is running."""
        ports = {port: name for name, port in self._ports.items()
                 if name != "m6.signal"}
        if not ports:
            return False
        for port in select.select(list(ports), [], [], seconds)[0]:
            name = ports[port]
            data = port.recv(65536)
            if not data:
                del self._ports[name]
            elif name == "m6.status":
                self._status_text += data
            elif name == "m6.dmesg":
                self.dmesg += data
            else:
                self.out[name].write(data)
                self.out[name].flush()
        if b"\n" in self._status_text:
            self.status = int(self._status_text)
        return self.status is None and self.qemu.poll() is None

    def remaining(self):
        """Seconds that this boot may still take; None for no limit."""
        if not self.timeout:
            return None
        return self.timeout - (time.monotonic() - self.began)

    def wait(self):
        """Run to the end: the command's exit status, or 124 or 125."""
        running = True
        while running:
            left = self.remaining()
            if left is not None and left <= 0:
                self._report(f"no end after {self.timeout} s (--timeout)")
                return TIMED_OUT
            running = self.pump(1 if left is None else min(left, 1))
        while self._ports and self.status is None and self.pump(0.2):
            pass
        if self.status is None:
            self._report("the guest ended without an exit status")
            return BOOT_FAILED
        return self.status

    def background(self):
        """Let a thread do the waiting; finish() gives what it came to."""
        self._thread = threading.Thread(target=self.wait, daemon=True)
        self._thread.start()

    def finish(self, seconds=60):
        """SIGTERM to the command that runs in the background; its status."""
        self.signal("TERM")
        self._thread.join(seconds)
        return TIMED_OUT if self._thread.is_alive() else self.status

    # Ending

    def stop(self):
        """End both processes and remove the run directory. Idempotent."""
        if self.dir is None:
            return
        self._stopping = True
        for child in reversed(self.children):
            if child.poll() is None:
                child.send_signal(signal.SIGTERM)
        for child in reversed(self.children):
            try:
                child.wait(3)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        if self._thread:
            self._thread.join()
        if self.disk:
            self.disk.close()
        self._restore_terminal()
        for port in self._ports.values():
            port.close()
        self._keep_logs()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir = None

    def _keep_logs(self):
        """The last boot's logs stay, for whoever asks what happened."""
        keep = os.path.join(TREE, "build", "vm", self.arch)
        os.makedirs(keep, exist_ok=True)
        for name in ("console.log", "emulator.log", "emulator.out",
                     "qemu.log"):
            if os.path.exists(self.path(name)):
                shutil.copyfile(self.path(name), os.path.join(keep, name))
        with open(os.path.join(keep, "dmesg.log"), "wb") as stream:
            stream.write(self.dmesg)

    def _report(self, reason):
        if self._stopping:
            return
        print(f"m6-vm: {reason}", file=sys.stderr)
        for name in ("console.log", "qemu.log", "emulator.log"):
            text = self.tail(name)
            if text:
                print(f"--- the end of {name}\n{text}", file=sys.stderr,
                      end="")
        print("--- whole logs: build/vm/" + self.arch, file=sys.stderr)

    def kernel_complaints(self):
        """Lines of the kernel's log that a sound run does not have."""
        marks = (b"BUG:", b"WARNING:", b"Oops", b"Kernel panic",
                 b"Call trace:", b"Call Trace:", b"refcount_t",
                 b"Unable to handle kernel", b"rcu: INFO")
        log = self.dmesg or self._read_bytes("console.log")
        return [line for line in log.splitlines()
                if any(mark in line for mark in marks)]

    # Small things

    def path(self, name):
        """A file of this run."""
        return os.path.join(self.dir, name)

    def tail(self, name, lines=40):
        """The last lines of a file of this run."""
        text = self._read_bytes(name).decode(errors="replace")
        text = text.replace("\r", "").splitlines()[-lines:]
        return "".join(line + "\n" for line in text)

    def _read_bytes(self, name):
        try:
            with open(self.path(name), "rb") as stream:
                return stream.read()
        except OSError:
            return b""

    @staticmethod
    def _read(path):
        try:
            with open(path) as stream:
                return stream.read().strip()
        except OSError:
            raise BoardError("this runs in the toolbox: toolbox/run "
                             "emulator/vm/run") from None

    @staticmethod
    def _terminal_settings():
        if not sys.stdin.isatty():
            return None
        import termios
        return termios.tcgetattr(sys.stdin.fileno())

    def _restore_terminal(self):
        # QEMU does that itself unless it was killed.
        if self._terminal:
            import termios
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW,
                              self._terminal)


def run_on_board(command, **kwargs):
    """One boot for one command: its exit status, output and errors."""
    out, err = io.BytesIO(), io.BytesIO()
    with Board(command=command, stdout=out, stderr=err, **kwargs) as board:
        status = board.wait()
    return subprocess.CompletedProcess(
        command, status, out.getvalue().decode(errors="replace"),
        err.getvalue().decode(errors="replace"))
