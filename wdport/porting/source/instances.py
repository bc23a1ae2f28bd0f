"""The instances of a model's modules in its port, their attributes and lines, and the classes of which they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from wdport.mapping.kinds.kind import KerasCall
from wdport.porting.construction import stated_arguments
from wdport.porting.lowering.keras_graph import Hole, KerasStep, Start, unused, word_of
from wdport.porting.outline.counterparts import defaults
from wdport.porting.source.body import Body, BodyWriter, NotWrittenError
from wdport.porting.source.call_methods import CALL, Way, ways_of
from wdport.porting.source.classes import Attribute, Class, Instance, SourceLine, merged, with_variant
from wdport.porting.source.code import Code, Literal, call, constant, listed, text
from wdport.porting.source.constructors import body_lines, layer_code, made_by, shown_arguments
from wdport.porting.source.names import allowed
from wdport.porting.source.scopes import Scope, Scopes
from wdport.porting.traced_arguments import ArgumentExpression, ConstructorCall, expressed


class NotOneMethodError(Exception):
    """The calls of a function of the author's do not all compute the same; ``key`` is the function."""

    def __init__(self, key: tuple[str, int]) -> None:
        super().__init__(f"{key[0]}:{key[1]}")
        self.key = key


class Instances:
    """The instances of a lowered graph, by path. ``share`` gives modules that several instances hold to these, and
    returns their names, see :mod:`wdport.porting.source.shared`."""

    def __init__(
        self, scopes: Scopes, reserved: frozenset[str], constructors: Mapping[str, ConstructorCall],
        starts: Mapping[str, Start], share: Callable[[Instances], Mapping[tuple[str, str], str]],
    ) -> None:  # fmt: skip
        self.scopes, self.reserved, self.constructors, self.starts = scopes, reserved, constructors, starts
        modules = scopes.graph.modules
        self.facts = {path: {**module.flags, **dict(stated_arguments(constructors.get(path, ConstructorCall())))}
                      for path, module in modules.items()}  # fmt: skip
        self.by_path: dict[str, Instance] = {}
        for scope in sorted(scopes.root.walk(), key=lambda scope: scope.node.serial):
            if scope.function is not None:
                continue
            self.by_path.setdefault(scope.path, Instance(scope.path, scope))
        self.lowered = scopes.lowered
        self._place()
        self.shared = share(self)
        self.trained = self._trained()
        self.ways: dict[int, Way] = {}
        self.classes = self._classes()

    def owner(self, path: str) -> Instance:
        """The innermost instance that a layer, a variable or an instance is in."""
        parent = path
        while parent:
            parent = parent.rpartition(".")[0]
            if parent in self.by_path:
                return self.by_path[parent]
        return self.by_path[""]

    def _place(self) -> None:
        """Give every layer, variable and inner instance an attribute of its owner."""
        named: dict[str, list[str]] = {}
        layers = {layer.torch: layer for layer in self.lowered.layers.values()}
        paths = [*self.lowered.variables, *layers, *(path for path in self.by_path if path)]
        for path in dict.fromkeys(paths):
            owner = self.owner(path)
            if path in layers and path in self.by_path and path:
                owner = self.by_path[path]  # a module whose only step is a layer
            named.setdefault(owner.path, []).append(path)
        for owner_path, inner in named.items():
            owner = self.by_path[owner_path]
            prefix = f"{owner_path}." if owner_path else ""
            relative = {path: path.removeprefix(prefix) if path != owner_path else self._own(path) for path in inner}
            if owner.scope.is_sequential:
                # The names of the layers.
                owner.parts |= {path: Attribute(name.replace(".", "_")) for path, name in relative.items()}
            else:
                self._attributes(owner, relative)

    def _own(self, path: str) -> str:
        """The attribute for a layer that a module itself is."""
        layer = next(layer for layer in self.lowered.layers.values() if layer.torch == path)
        return word_of(layer.call)

    def _attributes(self, owner: Instance, relative: Mapping[str, str]) -> None:
        lists: dict[str, list[tuple[int, str]]] = {}
        used: set[str] = set()
        for path, name in relative.items():
            head, _, rest = name.rpartition(".")
            if rest.isdigit():
                lists.setdefault(head.replace(".", "_") or "layers", []).append((int(rest), path))
                continue
            flat = allowed(name.replace(".", "_"), self.reserved)
            while flat in used:
                flat = f"{flat}_"
            used.add(flat)
            owner.parts[path] = Attribute(flat)
        for head, elements in lists.items():
            name = allowed(head, self.reserved)
            while name in used:
                name = f"{name}_"
            used.add(name)
            for position, (_, path) in enumerate(sorted(elements)):
                owner.parts[path] = Attribute(name, position)

    def attribute(self, scope_path: str, path: str) -> Attribute:
        return self.owner_of(path).parts[path]

    def owner_of(self, path: str) -> Instance:
        return next(instance for instance in self.by_path.values() if path in instance.parts)

    def expression(self, viewer: str, path: str) -> str | None:
        """How a module's code names a layer, a variable or an instance; ``None`` if it is not inside the module."""
        chain: list[str] = []
        current = path
        while True:
            if (name := self.shared.get((viewer, current))) is not None:
                return ".".join(["self", name, *reversed(chain)])
            owner = self.owner_of(current)
            chain.append(owner.parts[current].expression)
            if owner.path == viewer:
                return ".".join(["self", *reversed(chain)])
            if not owner.path or owner.path == current:
                return None
            current = owner.path

    def keras_path(self, path: str) -> str:
        """The path of a layer, a variable or an instance in the Keras model."""
        pieces: list[str] = []
        current = path
        while True:
            owner = self.owner_of(current)
            pieces.append(owner.parts[current].path)
            if not owner.path:
                return "/".join(reversed(pieces))
            current = owner.path

    def _trained(self) -> set[str]:
        """The layers and instances that are told whether the model is trained: if one in a list is, all are."""
        trained = set(self.scopes.trained)
        keys = {layer.torch: layer.name for layer in self.lowered.layers.values()}
        for instance in self.by_path.values():
            lists: dict[str, list[str]] = {}
            for path, attribute in instance.parts.items():
                if attribute.index is not None:
                    lists.setdefault(attribute.name, []).append(keys.get(path, path))
            for names in lists.values():
                if trained & set(names):
                    trained |= set(names)
        return trained

    def _names_of(self, instance: Instance) -> dict[str, str]:
        """The expressions of layers by name, of variables and of instances by path, as the instance's code has them."""
        names: dict[str, str] = {}
        for name, layer in self.lowered.layers.items():
            if (expression := self.expression(instance.path, layer.torch)) is not None:
                names[name] = expression
        for path in (*self.lowered.variables, *(path for path in self.by_path if path)):
            if (expression := self.expression(instance.path, path)) is not None:
                names[path] = expression
        for alias in self.lowered.aliases.values():
            if (expression := self.expression(instance.path, alias.torch)) is not None:
                names[alias.path] = f"{expression}.{alias.variable}"
        return names

    def _classes(self) -> list[Class]:
        """The classes, those of inner instances first."""
        heights = self._heights()
        by_type: dict[str, list[Instance]] = {}
        for instance in self.by_path.values():
            if instance.scope.is_sequential:
                continue
            by_type.setdefault(instance.type, []).append(instance)
        groups: list[tuple[int, list[Instance]]] = []
        for instances in by_type.values():
            # Instances inside instances of the same class are classes of their own.
            levels = [heights[instance.path] for instance in instances]
            if self._is_nested(instances):
                groups += [(level, [one for one in instances if heights[one.path] == level]) for level in set(levels)]
            else:
                groups.append((max(levels), instances))
        classes: list[Class] = []
        names: dict[str, int] = {}
        for _, instances in sorted(groups, key=lambda group: group[0]):
            for instance in instances:
                self._fill(instance)
            self._show_alike(instances)
            for instance in instances:
                self._write(instance)
            for class_ in self._grouped(instances):
                word = allowed(class_.type.rpartition(".")[2])
                names[word] = names.get(word, 0) + 1
                class_.name = word if names[word] == 1 else f"{word}{names[word]}"
                class_.find_parameters(self.constructors, self.facts, self.reserved)
                self._order_inputs(class_)
                for instance in class_.instances:
                    instance.class_ = class_
                classes.append(class_)
        return classes

    def _grouped(self, instances: Sequence[Instance]) -> list[Class]:
        if (one := merged(instances, self.facts)) is not None:
            return [one]
        groups: dict[str, list[Instance]] = {}
        for instance in instances:
            groups.setdefault(instance.skeleton, []).append(instance)
        classes: list[Class] = []
        for group in groups.values():
            joined = ((number, merged([*other.instances, *group], self.facts)) for number, other in enumerate(classes))
            number, class_ = next(((number, one) for number, one in joined if one is not None), (len(classes), None))
            classes[number : number + 1] = [class_ or Class("", group, with_variant([], group))]
        return classes

    def _order_inputs(self, class_: Class) -> None:
        """Let the calls of instances give their inputs as the class has them: those that are optional by name."""
        optional = class_.optional_inputs
        calls = [scope for scope in self.scopes.root.walk() if scope.path in class_.paths and scope.function is None]
        for scope in calls if optional else ():
            parameters = self.by_path[scope.path].body.parameters[: len(scope.parameters)]
            if self.ways[scope.serial].method == CALL:
                order = tuple((parameters.index(name), name if name in optional else "")
                              for name in class_.inputs if name in parameters)  # fmt: skip
                self.ways[scope.serial] = replace(self.ways[scope.serial], order=order)

    def _heights(self) -> dict[str, int]:
        heights: dict[str, int] = {}
        for scope in self.scopes.root.walk():
            inner = [heights[item.path] for item in scope.flat() if isinstance(item, Scope)]
            parts = [heights.get(path, -1) for path in self.by_path[scope.path].parts if path in self.by_path]
            heights[scope.path] = max([heights.get(scope.path, 0), *(height + 1 for height in (*inner, *parts))])
        return heights

    def _is_nested(self, instances: Sequence[Instance]) -> bool:
        paths = [instance.path for instance in instances]
        return any(b != a and (not a or b.startswith(f"{a}.")) for a in paths for b in paths)

    def _fill(self, instance: Instance) -> None:
        """Write the body of an instance whose inner instances have classes."""
        scopes = [scope for scope in self.scopes.root.walk() if scope.path == instance.path]
        methods: dict[str, Hole] = {}
        # A function that calls another one comes after it.
        functions: dict[tuple[str, int], list[Scope]] = {}
        for scope in scopes:
            if scope.function is not None:
                functions.setdefault(scope.function.key, []).append(scope)
        of_functions: dict[str, Body] = {}
        for key, calls in functions.items():
            of_functions |= self._function(key, calls, instance, methods, of_functions)
        modules = [scope for scope in scopes if scope.function is None]
        bodies = [(scope, self._body(scope, instance, methods))
                  for scope in sorted(modules, key=lambda scope: scope.serial)]  # fmt: skip
        instance.bodies, ways = ways_of(bodies)
        instance.bodies |= of_functions
        self.ways |= ways
        layers = {layer.torch: layer.call for layer in self.lowered.layers.values()}
        instance.layers = {path: layers[path] for path in self._inner_parts(instance) if path in layers}

    def _function(
        self, key: tuple[str, int], calls: Sequence[Scope], instance: Instance, methods: dict[str, Hole],
        others: Mapping[str, Body],
    ) -> dict[str, Body]:  # fmt: skip
        """The method of a function of the author's; raises :class:`NotOneMethodError` if its calls differ."""
        assert calls[0].function is not None
        used = {*others, CALL, *(attribute.name for attribute in instance.parts.values())}
        name = unused(allowed(calls[0].function.name, self.reserved), used)
        try:
            bodies, ways = ways_of([(scope, self._body(scope, instance, methods)) for scope in calls], name)
        except (NotWrittenError, KeyError) as error:
            raise NotOneMethodError(key) from error
        if len(bodies) > 1 or methods:
            raise NotOneMethodError(key)
        self.ways |= ways
        return {name: replace(body, is_function=not calls[0].function.is_method) for name, body in bodies.items()}

    def _inner_parts(self, instance: Instance) -> Iterator[str]:
        """The paths of an instance's parts, and of those of its sequential ones."""
        for path in instance.parts:
            yield path
            if path != instance.path and path in self.by_path and self.by_path[path].scope.is_sequential:
                yield from self._inner_parts(self.by_path[path])

    def _show_alike(self, instances: Sequence[Instance]) -> None:
        """Let the layers of one attribute state the same arguments in all instances."""
        groups: dict[tuple[str, str], list[tuple[Instance, str]]] = {}
        for instance in instances:
            for path, layer in instance.layers.items():
                groups.setdefault((path.removeprefix(instance.path), layer.name), []).append((instance, path))
        for group in groups.values():
            calls = [instance.layers[path] for instance, path in group]
            declared = defaults(calls[0].name)
            stated_keys = {key for call in calls for key in shown_arguments(call, declared)}
            for (instance, path), one in zip(group, calls, strict=True):
                stated = {key: one.arguments.get(key, declared.get(key)) for key in (*one.arguments, *stated_keys)}
                instance.layers[path] = KerasCall(one.name, stated, dict.fromkeys(stated_keys, "stated"))

    def _write(self, instance: Instance) -> None:
        """The lines of an instance."""
        order = list(instance.parts)
        attributes: dict[str, list[tuple[Attribute, Code]]] = {}
        shared_paths = {path for _, path in self.shared}

        def place(path: str) -> tuple[bool, int, int]:
            # What others hold comes first, so that Keras names it after this attribute.
            return path not in shared_paths, self._first_use(instance, path), order.index(path)

        for path in sorted(order, key=place):
            attribute = instance.parts[path]
            attributes.setdefault(attribute.name, []).append((attribute, self._constructor(path, instance)))
        for name, elements in attributes.items():
            instance.lines.append(SourceLine(Code((f"self.{name} = ", *made_by(elements).parts)), name))
        for (holder, path), name in self.shared.items():
            if path in instance.parts:
                target = f"{self.expression(instance.path, holder)}.{name}"
                instance.lines.append(SourceLine(text(f"{target} = {self.expression(instance.path, path)}"), target))
        lengths = {f"self.{name}": len(elements) for name, elements in attributes.items()
                   if elements[0][0].index is not None}  # fmt: skip
        # So that instances of one class leave the same steps to their methods.
        instance.lines += [
            SourceLine(text(repr(hole.key)), method=name) for name, hole in instance.body.methods.items()
        ]
        for name, body in instance.bodies.items():
            instance.lines += body_lines(body, lengths, "" if name == CALL else name)

    def _body(self, scope: Scope, instance: Instance, methods: dict[str, Hole]) -> Body:
        names = self._names_of(instance)
        return BodyWriter(self.scopes, scope, names, self.trained, self.reserved, self.ways, methods).write()

    def _first_use(self, instance: Instance, path: str) -> int:
        """Where the first step is that uses a part, so that the constructor has its parts in the order of the call."""
        attribute = instance.parts[path]
        same = {other for other, one in instance.parts.items() if one.name == attribute.name}
        layers = {layer.name for layer in self.lowered.layers.values() if layer.torch in same}
        for position, item in enumerate(instance.scope.flat()):
            if isinstance(item, Scope) and item.path in same:
                return position
            if isinstance(item, KerasStep) and item.layer in layers:
                return position
        return -1

    def _constructor(self, path: str, instance: Instance, name: str = "") -> Code:
        """What makes a part; elements of a ``keras.Sequential`` have names."""
        layers = [layer for layer in self.lowered.layers.values() if layer.torch == path]
        named = [("name", text(f'"{name}"'))] if name else []
        if layers:
            return layer_code(instance.layers.get(path, layers[-1].call), named)
        if path in self.by_path and self.by_path[path].scope.is_sequential:
            inner = self.by_path[path]
            names = [inner.parts[element].name for element in map(self.scopes.path, inner.scope.items)]
            codes = [self._constructor(element, instance, element_name) for element, element_name
                     in zip(map(self.scopes.path, inner.scope.items), names, strict=True)]  # fmt: skip
            return call("keras.Sequential", [listed(codes, "[]")], named)
        if path in self.by_path:
            class_ = self.by_path[path].class_
            assert class_ is not None
            stated = [(name, constant(value.value, name)) for name, value in class_.arguments(self.by_path[path])]
            outer = self.constructors.get(instance.path, ConstructorCall())
            leading = zip(stated, class_.required, strict=False)
            passed_on = list(takewhile(lambda pair: pair[0][0] == pair[1] and _is_passed_on(*pair[0], outer), leading))
            args, kwargs = [code for (_, code), _ in passed_on], stated[len(passed_on) :]
            return call(class_.name, args, [*kwargs, *named])
        held = self.scopes.graph.tensors[path]
        more = [] if held.trained else [("trainable", text("False"))]
        name = self.owner_of(path).parts[path].name
        starts_empty = name.endswith("bias") or (held.kind == "buffer" and not name.endswith(("var", "std", "scale")))
        usual = "zeros" if starts_empty else "ones" if len(held.shape) < 2 else "glorot_uniform"
        initializer = self._start(path, instance) if path in self.starts else text(f'"{usual}"')
        shape = listed([constant(int(size), "shape" if size > 1 else "") for size in held.shape])
        return call("self.add_weight", [], [("shape", shape), ("initializer", initializer),
                                            ("name", text(f'"{name}"')), *more])  # fmt: skip

    def _start(self, path: str, instance: Instance) -> Code:
        """The initializer of a buffer."""
        start = self.starts[path]
        if start.formula is not None:
            scopes = Scopes(self.scopes.graph, start.formula, {})
            writer = BodyWriter(scopes, scopes.root, {}, ())
            code = writer.expression(start.formula.outputs[0].value)
            instance.body.helpers |= writer.body.helpers
            return Code(("lambda shape, dtype: ", *code.parts))
        if start.constant in (None, 0, 1):
            return text('"ones"' if start.constant else '"zeros"')
        return call("keras.initializers.Constant", [constant(start.constant, "value")])


def _is_passed_on(name: str, code: Code, constructor: ConstructorCall) -> bool:
    """Whether an argument is the argument of the same name of the outer constructor."""
    value = code.parts[0].value if len(code.parts) == 1 and isinstance(code.parts[0], Literal) else None
    return expressed(value, constructor) == ArgumentExpression("argument", name=name)
