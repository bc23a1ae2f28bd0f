"""Refuse the names of pickled globals that only an attack would put into a checkpoint.

Nothing in a file is ever imported or called here, so an unknown class is not a danger to this reader. A file that
contains one of these names was made to harm another reader, and is refused as a whole: wherever the name occurs, called
or not.
"""

from __future__ import annotations

from typing import Final

from wdport.checkpoint.faults import DO_NOT_LOAD, Fault


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MODULES: Final = _words(
    # the operating system and its processes
    "os posix nt posixpath ntpath genericpath subprocess _posixsubprocess multiprocessing pty sys _winapi winreg"
    " popen2 shutil fcntl mmap _osx_support _aix_support"
    # import and execution of code
    " importlib _frozen_importlib _frozen_importlib_external _imp imp runpy pkgutil zipimport code codeop pip ensurepip"
    " venv sysconfig pkg_resources setuptools distutils pdb bdb cProfile timeit doctest pydoc cgitb idlelib lib2to3"
    " _pyrepl nturl2path atexit"
    # other loaders of pickles and of machine code
    " pickle _pickle cPickle dill cloudpickle joblib marshal shelve ctypes _ctypes cffi"
    # the network
    " socket _socket ssl webbrowser urllib urllib2 urllib3 http httplib httplib2 requests aiohttp ftplib smtplib"
    " telnetlib xmlrpc xmlrpclib asyncio socketserver"
    # what torch and numpy have of these
    " torch.hub torch.jit torch.package torch.serialization torch.multiprocessing torch._dynamo torch._inductor"
    " torch.ops torch.classes torch.utils.cpp_extension torch.utils.collect_env torch.utils.bottleneck"
    " torch.utils._config_module torch.utils.model_zoo torch.utils.data.datapipes.utils torch.distributed.rpc"
    " torch.fx.experimental.symbolic_shapes torch.export numpy.testing numpy.f2py numpy.distutils"
)
"""Modules of which no name is needed, nor any name of their submodules."""

ALLOWED: Final = frozenset(
    {("torch.serialization", "_get_layout")}
    | {("torch.jit._pickle", f"build_{kind}list") for kind in ("int", "double", "bool", "tensor")}
    | {("torch.jit._pickle", name) for name in ("build_tensor_from_id", "restore_type_tag")}
)
"""Names below one of them that real files contain: a sparse tensor's layout, and TorchScript's lists."""

_EXECUTING: Final = _words(
    "eval exec compile getattr setattr delattr open file __import__ execfile apply input breakpoint globals locals vars"
)

NAMES: Final = frozenset(
    {(module, name) for module in ("builtins", "__builtin__", "__builtins__") for name in _EXECUTING}
    | {(module, name) for module in ("io", "_io", "codecs") for name in ("open", "open_code", "FileIO", "file")}
    | {(module, name) for module in ("operator", "_operator") for name in ("attrgetter", "methodcaller")}
    | {("types", name) for name in ("FunctionType", "CodeType", "LambdaType", "ModuleType")}
    | {("copyreg", "add_extension"), ("copy_reg", "add_extension"), ("logging.config", "dictConfig")}
    | {("numpy", "load"), ("numpy", "fromfile"), ("numpy", "loadtxt"), ("pandas", "read_pickle"), ("pandas", "eval")}
    | {("profile", name) for name in ("run", "runctx", "Profile")}
    | {("trace", "Trace"), ("platform", "popen"), ("commands", "getoutput")}
    | {("torch", "load"), ("torch", "compile"), ("torch.storage", "_load_from_bytes")}
    | {("torch.fx.graph_module", "_forward_from_src"), ("torch.fx.graph_module", "_exec_with_source")}
    | {("torch._C", "_jit_script_compile"), ("torch._utils", "_import_dotted_name"), ("torch._ops", "load_library")}
)
"""Single names of modules that also have harmless names."""

ALIASES: Final = _words(
    "eval exec __import__ execfile getattr system popen breakpoint __builtins__ __globals__ os sys posix subprocess"
    " importlib runpy pickle marshal ctypes socket builtins load_library"
)
"""Names that are refused in any module: many modules import these and so expose them under their own name."""


def refuse_hostile(module: str, name: str) -> None:
    """Raise :class:`Fault` for a global that weights never need."""
    if (module, name) in NAMES or name in ALIASES or _below(module, name):
        raise Fault(f"the pickle asks for {module}.{name}, which only an attack needs", DO_NOT_LOAD)
    if "." in name or (name.startswith("__") and name.endswith("__") and module not in ("copyreg", "copy_reg")):
        what = f"the pickle asks for {module}.{name}, an attribute of something else"
        raise Fault(what, DO_NOT_LOAD)


def _below(module: str, name: str) -> bool:
    if (module, name) in ALLOWED:
        return False
    parts = module.split(".")
    return any(".".join(parts[:end]) in MODULES for end in range(1, len(parts) + 1))
