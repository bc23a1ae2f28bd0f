"""Resolve the name of a pickled global to a known symbol or an unloaded object, or refuse it.

Nothing in a file is ever imported or called, so an unknown class is no danger to this reader. The known names are those
that weights need, and only the few functions below are ever applied: each reimplements a constructor on plain data. A
file with a name that only an attack needs was made to harm another reader, and is refused as a whole, wherever the name
occurs, called or not, also under the name that it had in Python 2; every other name is an unloaded object. Of
``getattr`` there is one harmless use: a pickle of protocol 2 names a nested class, and a member of an enumeration under
some versions of Python, as an attribute of a class. The attribute is a name too, and nothing is looked up. It must be
written as classes and constants are: a method could be passed to a function that calls it.
"""

from __future__ import annotations

from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from wdport.base.limits import MAX_RANK
from wdport.checkpoint.faults import DO_NOT_LOAD, LOAD_AND_SAVE, NOT_WRITTEN_BY_TORCH, Fault, UnsupportedTensor
from wdport.checkpoint.tensor import TORCH_DTYPES, TORCH_STORAGES, StorageClass, StorageRef, TensorRef, tensor_ref
from wdport.checkpoint.unloaded_object import UnloadedObject, applied, unknown, unreadable


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
    | {("http", "HTTPStatus"), ("http", "HTTPMethod")}
)
"""Names below one of them that real files contain: a sparse tensor's layout, TorchScript's lists, and enumerations."""

_EXECUTING: Final = _words(
    "eval exec compile getattr setattr delattr open file __import__ execfile apply input breakpoint globals locals vars"
)

NAMES: Final = frozenset(
    {(module, name) for module in ("builtins", "__builtin__", "__builtins__") for name in _EXECUTING}
    | {(module, name) for module in ("io", "_io", "codecs") for name in ("open", "open_code", "FileIO", "file")}
    | {(module, name) for module in ("operator", "_operator") for name in ("attrgetter", "methodcaller")}
    | {("inspect", "getattr_static")}
    | {("types", name) for name in ("FunctionType", "CodeType", "LambdaType", "ModuleType")}
    | {("copyreg", "add_extension"), ("copy_reg", "add_extension"), ("logging.config", "dictConfig")}
    | {("numpy", "load"), ("numpy", "fromfile"), ("numpy", "loadtxt"), ("pandas", "read_pickle"), ("pandas", "eval")}
    | {("profile", name) for name in ("run", "runctx", "Profile")}
    | {("trace", "Trace"), ("platform", "popen")}
    | {("torch", "load"), ("torch", "compile"), ("torch.storage", "_load_from_bytes")}
    | {("torch.fx.graph_module", "_forward_from_src"), ("torch.fx.graph_module", "_exec_with_source")}
    | {("torch._C", "_jit_script_compile"), ("torch._utils", "_import_dotted_name"), ("torch._ops", "load_library")}
)
"""Single names of modules that also have harmless names."""

ALIASES: Final = _words(
    "eval exec __import__ execfile getattr system popen breakpoint __builtins__ __globals__ os sys posix subprocess"
    " importlib runpy pickle marshal ctypes socket builtins load_library _os _sys _shutil bltns exec_ _builtin_open"
)
"""Names that are refused in any module: many modules import these, and so expose them as attributes."""


def refuse_hostile(module: str, name: str) -> None:
    """Raise :class:`Fault` for a global that weights never need."""
    # Python's unpickler maps the names of Python 2: `commands.call` is `subprocess.call`.
    for asked in {(module, name), NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))}:
        if asked in NAMES or asked[1] in ALIASES or _below(*asked):
            raise attack(f"{module}.{name}")
    # Python's unpickler follows a dotted name from attribute to attribute (protocol 4), which a class within a class
    # needs. copyreg has harmless names with two underscores (`__newobj__`).
    dotted = "." in name and not all(_is_class_name(part) for part in name.split("."))
    if dotted or (name.startswith("__") and name.endswith("__") and module not in ("copyreg", "copy_reg")):
        what = f"the pickle asks for {module}.{name}, an attribute of something else"
        raise Fault(what, DO_NOT_LOAD)


def attack(name: str) -> Fault:
    """Return the :class:`Fault` for ``name``, which a file of weights does not contain."""
    return Fault(f"the pickle asks for {name}, which only an attack needs", DO_NOT_LOAD)


def _is_class_name(name: str) -> bool:
    """Whether ``name``, of one part, is written as classes and constants are, perhaps after an underscore."""
    return name.isidentifier() and not name.startswith("__") and name.lstrip("_")[:1].isupper()


def _below(module: str, name: str) -> bool:
    if (module, name) in ALLOWED:
        return False
    parts = module.split(".")
    return any(".".join(parts[:end]) in MODULES for end in range(1, len(parts) + 1))


Arguments = tuple[object, ...]

_MOST_NOTES: Final = 100
_OTHER_VALUES: Final = frozenset(
    {"data", "grad", "_grad", "real", "imag", "T", "H", "mT", "mH", "names", "requires_grad", "grad_fn", "is_leaf"}
    | {"shape", "dtype", "device", "layout"}
)
"""Attributes of a tensor that are not only annotations: setting one may change its values."""


@dataclass(frozen=True, slots=True)
class Constructor:
    """A callable that the pickle may apply; ``build`` makes its plain counterpart.

    Arguments that torch never writes are a :class:`Fault`; a valid tensor of an unsupported kind is an inert leaf.
    """

    name: str
    build: Callable[[Arguments], object]


@dataclass(frozen=True, slots=True)
class ConstantSymbol:
    """A harmless object that is only named, such as ``torch.float32``."""

    name: str


Symbol = Constructor | StorageClass | ConstantSymbol | UnloadedObject


def resolve(module: str, name: str) -> Symbol:
    """Return the symbol for ``module.name``; a name that only an attack needs is a :class:`Fault`."""
    symbol = _SYMBOLS.get((module, name))
    if symbol is not None:
        return symbol
    refuse_hostile(module, name)
    return unknown(module, name)


def _tensor(arguments: Arguments) -> object:
    """``_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks[, metadata])``; files of
    PyTorch on Python 2 may have ``None`` for no hooks."""
    if len(arguments) not in (6, 7):
        raise Fault(f"a tensor is rebuilt from {len(arguments)} arguments instead of 6", NOT_WRITTEN_BY_TORCH)
    requires_grad, hooks = arguments[4:6]
    if type(requires_grad) is not bool:
        raise Fault("a tensor is rebuilt from arguments of the wrong type")
    rebuilt = _plain_tensor(arguments[:4])
    if hooks is not None and (type(hooks) is not OrderedDict or hooks):
        return unreadable(UnsupportedTensor("a tensor with backward hooks, which is not read", LOAD_AND_SAVE))
    # torch writes {"conj": True} or {"neg": True} for a view that is conjugated or negated lazily.
    if len(arguments) == 7 and arguments[6]:
        return unreadable(
            UnsupportedTensor("a tensor that is to be conjugated or negated, which is not read", LOAD_AND_SAVE)
        )
    return rebuilt


def _plain_tensor(arguments: Arguments) -> object:
    """``_rebuild_tensor(storage, offset, size, stride)``, as torch before 0.4 wrote it."""
    if len(arguments) != 4:
        raise Fault(f"a tensor is rebuilt from {len(arguments)} arguments instead of 4", NOT_WRITTEN_BY_TORCH)
    source, offset, shape, strides = arguments
    if not isinstance(source, StorageRef):
        raise Fault("a tensor is rebuilt from something that is not a storage")
    if type(offset) is not int:
        raise Fault("a tensor is rebuilt from arguments of the wrong type")
    try:
        return tensor_ref(source, offset, _lengths(shape), _lengths(strides))
    except UnsupportedTensor as fault:
        return unreadable(fault)


def _parameter(arguments: Arguments) -> object:
    """``_rebuild_parameter(tensor, requires_grad, backward_hooks)`` or ``Parameter(tensor)``: the tensor."""
    match arguments:
        case ((TensorRef() | UnloadedObject()) as data, bool(), OrderedDict() as hooks) if not hooks:
            return data
        case ((TensorRef() | UnloadedObject()) as data,) | ((TensorRef() | UnloadedObject()) as data, bool()):
            return data
    raise Fault("a parameter is rebuilt from arguments of the wrong type", NOT_WRITTEN_BY_TORCH)


def _parameter_with_state(arguments: Arguments) -> object:
    """``_rebuild_parameter_with_state(tensor, requires_grad, backward_hooks, attributes)``: the tensor."""
    data = _parameter(arguments[:3])
    if len(arguments) == 4 and _is_note(arguments[3]):
        return data
    return applied(unknown("torch._utils", "_rebuild_parameter_with_state"), arguments, "call")


def _tensor_of_type(arguments: Arguments) -> object:
    """``_rebuild_from_type_v2(function, class, arguments, attributes)``: a tensor, if the class is torch's."""
    match arguments:
        case (Constructor() as function, cls, tuple() as inner, state) if _is_tensor_class(cls) and _is_note(state):
            return function.build(inner)
    return applied(unknown("torch._tensor", "_rebuild_from_type_v2"), arguments, "call")


def _ordered_dict(arguments: Arguments) -> OrderedDict[object, object]:
    """``OrderedDict()``, or ``OrderedDict(pairs)`` as Python 2 writes it; the machine sets the pairs."""
    if len(arguments) > 1 or (arguments and type(arguments[0]) is not list):
        raise Fault("an OrderedDict is built from arguments that torch never writes", NOT_WRITTEN_BY_TORCH)
    return OrderedDict()


def _text_set(arguments: Arguments) -> object:
    """``set(list)``: a frozenset of text; a set of anything else is an inert leaf."""
    if len(arguments) == 1 and type(arguments[0]) is list and all(type(item) is str for item in arguments[0]):
        return frozenset(arguments[0])
    # An inert leaf gets no arguments: a set of millions would otherwise stay in memory for a name.
    return frozenset() if not arguments else applied(unknown("builtins", "set"), (), "object")


def _counter(arguments: Arguments) -> object:
    """``collections.Counter(dict)`` of whole numbers, the milestones of a schedule; any other is an inert leaf."""
    match arguments:
        # MultiStepLR stores its milestones as a Counter, so a schedule cannot be revived without it.
        case (dict() as counts,) if all(type(number) is int for pair in counts.items() for number in pair):
            return Counter(counts)
    return applied(unknown("collections", "Counter"), (), "object")


def _size(arguments: Arguments) -> tuple[int, ...]:
    """``torch.Size(tuple)``."""
    if len(arguments) != 1:
        raise Fault("a torch.Size is built from the wrong number of arguments")
    return _lengths(arguments[0])


def _is_tensor_class(cls: object) -> bool:
    if isinstance(cls, UnloadedObject):
        return cls.form == "name" and cls.full_name == "torch.Tensor"
    return isinstance(cls, Constructor) and cls.build is _parameter and cls.name.endswith("Parameter")


def _is_note(state: object) -> bool:
    """Return whether these attributes, set on a tensor, leave its values unchanged."""
    if isinstance(state, tuple):
        # (`__dict__`, values of `__slots__`): the two forms in which copyreg stores attributes.
        return len(state) == 2 and all(_is_note(part) for part in state if not isinstance(part, tuple))
    if state is None:
        return True
    if not isinstance(state, dict) or len(state) > _MOST_NOTES:
        return False
    return all(isinstance(key, str) and key not in _OTHER_VALUES and not key.startswith("__") for key in state)


def _attribute(getattr_: str, arguments: Arguments) -> UnloadedObject:
    """``getattr(class, name)``: the name of a nested class or of an enumeration's member."""
    match arguments:
        case (UnloadedObject(form="name", reason="") as owner, str() as name) if (
            all(_is_class_name(part) for part in (*owner.name.split("."), name))
            and len(owner.full_name) + len(name) < MAX_NAME_CHARS
        ):
            return UnloadedObject(owner.module, f"{owner.name}.{name}", "name")
    raise attack(getattr_)


GETATTR: Final = tuple(
    Constructor(name, partial(_attribute, name)) for name in ("builtins.getattr", "__builtin__.getattr")
)
"""``getattr`` as Python 3 names it, and Python 2 and pickles for both."""

MAX_NAME_CHARS: Final = 500
"""Limit on the length of a pickled global's name."""


def _lengths(value: object) -> tuple[int, ...]:
    if type(value) is not tuple:
        raise Fault("a tensor's size or stride is not a tuple of integers")
    if len(value) > MAX_RANK:  # asked first: the same long tuple can be given a million times
        raise UnsupportedTensor(f"tensor of {len(value)} axes (at most {MAX_RANK} are read)", LOAD_AND_SAVE)
    if not all(type(length) is int for length in value):
        raise Fault("a tensor's size or stride is not a tuple of integers")
    return value


_CONSTRUCTORS: Final = (
    ("torch._utils", "_rebuild_tensor", _plain_tensor),
    ("torch._utils", "_rebuild_tensor_v2", _tensor),
    ("torch._utils", "_rebuild_parameter", _parameter),
    ("torch._utils", "_rebuild_parameter_with_state", _parameter_with_state),
    ("torch._tensor", "_rebuild_from_type_v2", _tensor_of_type),
    ("torch.nn.parameter", "Parameter", _parameter),
    ("collections", "OrderedDict", _ordered_dict),
    ("collections", "Counter", _counter),
    ("torch", "Size", _size),
    ("__builtin__", "set", _text_set),
    ("builtins", "set", _text_set),
)

_STORAGES: Final = (
    *(("torch", name, dtype) for name, dtype in TORCH_STORAGES.items()),
    *(("torch.cuda", name, dtype) for name, dtype in TORCH_STORAGES.items()),
    ("torch.storage", "UntypedStorage", "untyped"),
)

_SYMBOLS: Final[dict[tuple[str, str], Symbol]] = {
    **{(module, name): Constructor(f"{module}.{name}", build) for module, name, build in _CONSTRUCTORS},
    **{(module, name): StorageClass(f"{module}.{name}", dtype) for module, name, dtype in _STORAGES},
    **{("torch", name): ConstantSymbol(f"torch.{name}") for name in TORCH_DTYPES},
    **{(symbol.name.partition(".")[0], "getattr"): symbol for symbol in GETATTR},
}
