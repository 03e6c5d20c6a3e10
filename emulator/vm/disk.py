# SPDX-License-Identifier: MIT
"""The board's disk: an image that QEMU reads and writes through us.

So a test may make it slow, unreadable or wrong in places, or stand still, while
the guest uses it. It speaks the NBD protocol on a Unix socket, to one client.
"""

import errno
import mmap
import os
import socket
import struct
import threading
import time

MAGIC, OPTION_MAGIC = b"NBDMAGIC", b"IHAVEOPT"
REPLY_MAGIC = 0x3e889045565a9
FIXED_NEWSTYLE = 1
OPT_EXPORT_NAME, OPT_ABORT, OPT_GO = 1, 2, 7
REP_ACK, REP_INFO, REP_UNSUPPORTED = 1, 3, (1 << 31) + 1
HAS_FLAGS, SEND_FLUSH = 1, 4
READ, WRITE, DISCONNECT, FLUSH = range(4)
SECTOR = 512


class Disk:
    """Serves an image until close()."""

    def __init__(self, image, path, mb_s=None, errors=()):
        self.size = os.path.getsize(image)
        self.mb_s = mb_s		# of reads; None: as fast as it goes
        self.errors = list(errors)	# ranges of bytes that cannot be read
        self.wrong = []			# ranges that are read as what they aren't
        self.reads = 0			# bytes so far
        self._image = os.open(image, os.O_RDWR)
        self._path = path
        self._going = threading.Event()
        self._going.set()
        self._waiting = threading.Event()
        self._free_at = 0.0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(1)
        self._client = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def qemu_args(self):
        """What QEMU is told."""
        return ["-drive", f"if=none,id=disk,format=raw,file=nbd+unix:///?"
                f"socket={self._path}",
                "-device", "nvme,drive=disk,serial=m6disk"]

    def find(self, data):
        """Where the image has a piece of a file, as a range of bytes."""
        with mmap.mmap(self._image, 0, prot=mmap.PROT_READ) as image:
            at = image.find(data)
            while at >= 0 and at % SECTOR:
                at = image.find(data, at + 1)
        if at < 0:
            raise ValueError("it is not on the disk in one piece")
        return range(at, at + len(data))

    def hold(self):
        """From now on no read ends, until release()."""
        self._waiting.clear()
        self._going.clear()

    def wait_held(self, seconds):
        """Until a read waits; false when none came."""
        return self._waiting.wait(seconds)

    def release(self):
        """What was held goes on."""
        self._going.set()

    def close(self):
        """Idempotent."""
        self._going.set()
        self._free_at = 0.0
        self.mb_s = None
        for sock in (self._listener, self._client):
            if sock:
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
                sock.close()
        self._thread.join()
        if self._image >= 0:
            os.close(self._image)
            self._image = -1

    # The protocol

    def _serve(self):
        try:
            self._client = self._listener.accept()[0]
            if self._negotiate():
                while self._request():
                    pass
        except OSError:
            # The other side, or this one, has closed it.
            pass

    def _receive(self, count):
        data = b""
        while len(data) < count:
            more = self._client.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def _negotiate(self):
        """True: on to the transmission."""
        self._client.sendall(MAGIC + OPTION_MAGIC
                             + struct.pack(">H", FIXED_NEWSTYLE))
        self._receive(4)
        export = struct.pack(">QH", self.size, HAS_FLAGS | SEND_FLUSH)
        while True:
            _, option, length = struct.unpack(">8sII", self._receive(16))
            self._receive(length)
            if option == OPT_EXPORT_NAME:
                self._client.sendall(export + bytes(124))
                return True
            if option == OPT_GO:
                self._reply(option, REP_INFO, struct.pack(">H", 0) + export)
                self._reply(option, REP_ACK)
                return True
            self._reply(option, REP_ACK if option == OPT_ABORT
                        else REP_UNSUPPORTED)
            if option == OPT_ABORT:
                return False

    def _reply(self, option, kind, data=b""):
        self._client.sendall(struct.pack(">QIII", REPLY_MAGIC, option, kind,
                                         len(data)) + data)

    def _request(self):
        """One of the transmission; false at its end."""
        _, _, kind, handle, offset, length = struct.unpack(
            ">IHHQQI", self._receive(28))
        data, error = b"", 0
        if kind == READ:
            data, error = self._read(offset, length)
        elif kind == WRITE:
            os.pwrite(self._image, self._receive(length), offset)
        elif kind == FLUSH:
            os.fdatasync(self._image)
        elif kind == DISCONNECT:
            return False
        else:
            error = errno.EINVAL
        self._client.sendall(struct.pack(">IIQ", 0x67446698, error, handle)
                             + data)
        return True

    # Reading, with what a test wants of it

    def _read(self, offset, length):
        if not self._going.is_set():
            self._waiting.set()
            self._going.wait()
        self._take_time(length)
        asked = range(offset, offset + length)
        if any(_overlap(asked, bad) for bad in list(self.errors)):
            return b"", errno.EIO
        data = bytearray(os.pread(self._image, length, offset))
        for bad in list(self.wrong):
            for i in _overlap(asked, bad):
                data[i - offset] ^= 0xff
        self.reads += length
        return bytes(data), 0

    def _take_time(self, length):
        if not self.mb_s:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + length / (self.mb_s * 1e6)
        time.sleep(self._free_at - now)


def _overlap(a, b):
    return range(max(a.start, b.start), min(a.stop, b.stop))
