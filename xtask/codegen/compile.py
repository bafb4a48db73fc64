"""compile.py NVRTC SOURCE OUT: compiles a kernel source to PTX with a given libnvrtc. No GPU is needed."""

import ctypes
import pathlib
import sys

library, source, out = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
nvrtc = ctypes.CDLL(library)
program = ctypes.c_void_p()


def check(status, what):
    if status != 0:
        sys.exit(f"{source.name}: {what}: NVRTC error {status}")


def text(kind):
    size = ctypes.c_size_t()
    check(getattr(nvrtc, f"nvrtcGet{kind}Size")(program, ctypes.byref(size)), kind)
    bytes_of = ctypes.create_string_buffer(size.value)
    check(getattr(nvrtc, f"nvrtcGet{kind}")(program, bytes_of), kind)
    return bytes_of.raw[: size.value].rstrip(b"\0")


# Contraction would round differently than the CPU does. The path is relative, so that it never shows in what is written.
options = [b"--gpu-architecture=compute_75", b"--std=c++17", b"--fmad=false", b"-default-device", b"-I."]
name = source.name.encode()
check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.read_bytes(), name, 0, None, None), "start")
status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
log = text("ProgramLog").decode().strip()
if log:
    print(log, file=sys.stderr)
check(status, "compilation")
out.write_bytes(text("PTX"))
