"""How described frames become common messages: one rule for each class of frames.

    MESSAGES = MessageRules("station", {
        Login: MessageRule(Kind.CONTROL, op=Op.LOGIN, credentials=("station", "token")),
        Reading: MessageRule(Kind.TELEMETRY, source="station", fields={"celsius": InUnits("tenths")}),
    })

`MESSAGES.to_message` is what a `Protocol` takes. The kernel that decodes columns of frames follows the same rules.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from wirelake.errors import TranslationError
from wirelake.layout.fields import Counted, Custom, FieldSpec, Fixed, Nested, Number, Prefixed, Rest, SizedBy
from wirelake.layout.forms import ChosenBy
from wirelake.layout.frame import LayoutFrame
from wirelake.layout.generated import Source
from wirelake.layout.measuring import scale_of
from wirelake.message import (
    GATEWAY_SERVICE,
    UNITS,
    Credentials,
    Failure,
    Kind,
    Message,
    Operation,
    Topic,
)
from wirelake.protocols.frame import Frame, Sender


class Attribute(Struct, frozen=True):
    """Where a rule takes a constant text: the value of this attribute instead, after another text if one is given."""

    name: str
    before: str = ""


class NonZero(Struct, frozen=True):
    """Where a rule takes the text of a number: none if the number is 0."""

    attribute: str


class Listed(Struct, frozen=True):
    """A list that holds one value."""

    attribute: str


class Bit(Struct, frozen=True):
    """Whether a number has any of these bits."""

    attribute: str
    bits: int


class InUnits(Struct, frozen=True):
    """A number in the unit of its `scaled` mark."""

    attribute: str


Value = str | Listed | Bit | InUnits  # a text is the name of an attribute


class Equals(Struct, frozen=True):
    """A condition: an attribute has this value."""

    attribute: str
    value: int | bytes


class AtLeast(Struct, frozen=True):
    """A condition: a number is not less than this one."""

    attribute: str
    least: int


Condition = Equals | AtLeast


class MessageRule(Struct, frozen=True):
    """What a frame of one class means. Texts are names of its attributes, except `kind`, `name`, `service` and `op`.

    `fields` are the named values of the message; by default all that no other part of the rule takes, without secrets,
    and those that are scaled in their unit.
    An operation of kind CONTROL is one of the gateway itself.
    If `when` is given, the rule is for frames that meet all its conditions; the others are treated as without a rule.
    """

    kind: Kind
    op: str | Attribute = ""
    service: str | Attribute = ""
    topic: str = ""
    fields: Mapping[str, Value] | None = None
    payload: str = ""
    correlation: str | NonZero = ""
    source: str = ""
    id: str = ""
    type: str = ""
    at_ms: str = ""
    failure: tuple[str, str] | None = None  # text, code
    parts: str = ""  # a list of frames, which have rules of their own
    credentials: tuple[str, str] | None = None  # user, token; "" for a device that has none
    name: str = ""  # by default that of the class
    when: tuple[Condition, ...] = ()

    @property
    def target_service(self) -> str | Attribute:
        return GATEWAY_SERVICE if self.kind is Kind.CONTROL and self.op and not self.service else self.service

    @property
    def correlation_attribute(self) -> str:
        return self.correlation.attribute if isinstance(self.correlation, NonZero) else self.correlation

    def taken(self) -> set[str]:
        """Return the attributes that parts other than `fields` and `when` take."""
        names = {self.topic, self.payload, self.source, self.id, self.type, self.at_ms, self.parts}
        names.add(self.correlation_attribute)
        names |= {each.name for each in (self.op, self.service) if isinstance(each, Attribute)}
        return (names | set(self.failure or ()) | set(self.credentials or ())) - {""}


class MessageRules:
    """The rules of a protocol's frames. For a frame that no rule is for, `others` returns the message."""

    def __init__(
        self,
        protocol: str,
        rules: Mapping[type[LayoutFrame], MessageRule],
        others: Callable[[Frame, Sender], Message] | None = None,
    ) -> None:
        self.protocol = protocol
        self._others = others
        self.rules = dict(rules)
        self._source = Source(f"{protocol}.to_message")
        self._functions: dict[type[Frame], Any] = {}
        for kind, rule in self.rules.items():
            _check(kind, rule, self.rules)
            self._generate(kind, rule)
        compiled = self._source.compile(Message=Message, Topic=Topic, Operation=Operation, plain=plain)
        self._functions.update({kind: compiled[_function_name(self.rules, kind)] for kind in self.rules})

    def to_message(self, frame: Frame, sender: Sender) -> Message:
        """Return the message of a frame. Raise TranslationError if it has none."""
        function = self._functions.get(type(frame))
        message: Message | None = None if function is None else function(frame)
        if message is not None:
            return message
        if self._others is not None:
            return self._others(frame, sender)
        raise TranslationError(f"{frame.name} of {self.protocol} has no message")

    def source(self) -> str:
        """Return the generated source."""
        return self._source.text

    def _generate(self, kind: type[LayoutFrame], rule: MessageRule) -> None:
        source = self._source
        arguments = [f"kind={source.use(f'KIND_{rule.kind.name}', rule.kind)}", f"name={rule.name or kind.name!r}"]
        arguments.append(f"protocol={self.protocol!r}")
        if target := self._target(kind, rule):
            arguments.append(f"target={target}")
        given = ((name, getattr(rule, name)) for name in ("source", "id", "payload", "type", "at_ms"))
        arguments += [f"{name}=frame.{attribute}" for name, attribute in given if attribute]
        if rule.correlation:
            name = rule.correlation_attribute
            or_none = f' if frame.{name} else ""' if isinstance(rule.correlation, NonZero) else ""
            arguments.append(f"correlation={_text(kind, name)}{or_none}")
        for name, part, attributes in (
            ("failure", Failure, rule.failure),
            ("credentials", Credentials, rule.credentials),
        ):
            if attributes is not None:
                values = ", ".join(f"frame.{attribute}" if attribute else '""' for attribute in attributes)
                arguments.append(f"{name}={source.use(part.__name__, part)}({values})")
        if rule.parts:
            function = _function_name(self.rules, part_kind(kind, rule))
            arguments.append(f"parts=tuple([{function}(each) for each in frame.{rule.parts}])")
        pairs = [f"{name!r}: {_value(kind, value)}" for name, value in fields_of(kind, rule).items()]
        if pairs:
            arguments.append(f"fields={{{', '.join(pairs)}}}")
        units = units_of(kind, rule)
        if units:
            arguments.append(f"headers={{{UNITS!r}: {units!r}}}")
        with source.block(f"def {_function_name(self.rules, kind)}(frame):"):
            if rule.when:
                with source.block(f"if not ({' and '.join(map(_holds, rule.when))}):"):
                    source.line("return None")
            source.call("return Message(", arguments, ")")
        source.line("")
        source.line("")

    def _target(self, kind: type[LayoutFrame], rule: MessageRule) -> str:
        if rule.topic:
            return f"Topic({_text(kind, rule.topic)})"
        service = rule.target_service
        if not service and not rule.op:
            return ""
        if isinstance(service, Attribute) or isinstance(rule.op, Attribute):
            texts = [_joined(kind, each) if isinstance(each, Attribute) else repr(each) for each in (service, rule.op)]
            return f"Operation({', '.join(texts)})"
        return self._source.use(f"TO_{str(rule.op).upper() or 'SERVICE'}", Operation(service, str(rule.op)))


def fields_of(kind: type[LayoutFrame], rule: MessageRule) -> Mapping[str, Value]:
    """Return the values that a rule puts into the fields of the message."""
    if rule.fields is not None:
        return rule.fields
    taken = rule.taken()
    found = (field for field in kind.__layout_fields__ if field.const is None and not field.is_secret)
    return {
        field.name: field.name if field.scale is None else InUnits(field.name)
        for field in found
        if field.name not in taken
    }


def units_of(kind: type[LayoutFrame], rule: MessageRule) -> dict[str, str]:
    """Return the units of the fields that are not called like their attribute: that one's unit is known."""
    found = {}
    for name, value in fields_of(kind, rule).items():
        if isinstance(value, InUnits) and value.attribute != name:
            scale = spec_of(kind, value.attribute).scale
            found[name] = scale.unit if scale is not None else ""
    return found


def spec_of(kind: type[LayoutFrame], name: str) -> FieldSpec:
    """Return the description of an attribute, which may be one of the envelope's."""
    carried = kind.envelope.carried if kind.envelope is not None else ()
    for field in (*carried, *kind.__layout_fields__):
        if field.name == name:
            return field
    raise TypeError(f"{kind.__name__} has no attribute {name!r}")


def part_kind(kind: type[LayoutFrame], rule: MessageRule) -> type[LayoutFrame]:
    """Return the class of the frames in the list that `parts` names."""
    field = spec_of(kind, rule.parts)
    item = field.kind.item if isinstance(field.kind, Counted) else None
    if item is None or not isinstance(item.kind, Nested) or not issubclass(item.kind.kind, LayoutFrame):
        raise TypeError(f"{kind.__name__}.{rule.parts} is not a list of frames")
    return item.kind.kind


def plain(value: Any) -> Any:
    """Return a list for a tuple, and the values by name for a frame inside another, without secrets."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, LayoutFrame):
        fields = [field for field in value.__layout_fields__ if not field.is_secret]
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    return value


def attribute_of(value: Value) -> str:
    return value if isinstance(value, str) else value.attribute


def _check(kind: type[LayoutFrame], rule: MessageRule, rules: Mapping[type[LayoutFrame], MessageRule]) -> None:
    """Raise TypeError if a rule names what is not there, or shows a secret."""
    for name in rule.taken():
        spec_of(kind, name)
    if rule.topic and (rule.op or rule.service):
        raise TypeError(f"{kind.__name__}: a message goes to a topic or to a service")
    hidden = {rule.payload, *(rule.credentials or ())}
    shown = {attribute_of(value) for value in fields_of(kind, rule).values()} | rule.taken() - hidden
    for name in shown:
        if spec_of(kind, name).is_secret:
            raise TypeError(f"{kind.__name__}.{name} is secret: no field of a message may hold it")
    for condition in rule.when:
        _check_condition(kind, spec_of(kind, condition.attribute), condition)
    if isinstance(rule.correlation, NonZero) and not _is_integer(spec_of(kind, rule.correlation.attribute)):
        raise TypeError(f"{kind.__name__}.{rule.correlation.attribute} is not a number")
    for value in fields_of(kind, rule).values():
        field = spec_of(kind, attribute_of(value))
        if isinstance(value, InUnits):
            scale_of(field)
        if isinstance(value, InUnits | Bit) and not isinstance(field.kind, Number):
            raise TypeError(f"{kind.__name__}.{field.name} is not a number")
        if isinstance(value, Bit) and field.is_optional:
            raise TypeError(f"{kind.__name__}.{field.name} may be missing: it has no bits then")
    if rule.parts and part_kind(kind, rule) not in rules:
        raise TypeError(f"{kind.__name__}.{rule.parts}: its frames need a rule")
    if rule.parts and rules[part_kind(kind, rule)].when:
        raise TypeError(f"{kind.__name__}.{rule.parts}: its frames need a rule that is for all of them")


def _check_condition(kind: type[LayoutFrame], field: FieldSpec, condition: Condition) -> None:
    value = condition.least if isinstance(condition, AtLeast) else condition.value
    is_bytes = isinstance(field.kind, Fixed | Prefixed | Rest | SizedBy) and not field.kind.is_text
    if field.is_optional or not (_is_integer(field) if isinstance(value, int) else is_bytes):
        raise TypeError(f"{kind.__name__}.{field.name} cannot be compared with {value!r}")


def _is_integer(field: FieldSpec) -> bool:
    return isinstance(field.kind, Number) and not field.kind.is_float and not field.is_optional


def _text(kind: type[LayoutFrame], name: str) -> str:
    is_number = isinstance(spec_of(kind, name).kind, Number)
    return f"str(frame.{name})" if is_number else f"frame.{name}"


def _joined(kind: type[LayoutFrame], attribute: Attribute) -> str:
    text = _text(kind, attribute.name)
    return f"{attribute.before!r} + {text}" if attribute.before else text


def _holds(condition: Condition) -> str:
    match condition:
        case Equals(attribute=name, value=value):
            return f"frame.{name} == {value!r}"
        case AtLeast(attribute=name, least=least):
            return f"frame.{name} >= {least!r}"


def _value(kind: type[LayoutFrame], value: Value) -> str:
    name = attribute_of(value)
    field = spec_of(kind, name)
    match value:
        case Bit(bits=bits):
            return f"frame.{name} & {bits:#x} != 0"
        case InUnits():
            sign, number = scale_of(field)
            scaled = f"frame.{name} {sign} {number!r}"
            return f"None if frame.{name} is None else {scaled}" if field.is_optional else scaled
        case Listed():
            return f"[{_plain(field)}]"
    return _plain(field)


def _plain(field: FieldSpec) -> str:
    if not isinstance(field.kind, Counted | Nested | ChosenBy | Custom):
        return f"frame.{field.name}"
    item = field.kind.item if isinstance(field.kind, Counted) else None
    is_flat = item is not None and not isinstance(item.kind, Counted | Nested) and not field.is_optional
    return f"{'list' if is_flat else 'plain'}(frame.{field.name})"


def _function_name(rules: Mapping[type[LayoutFrame], MessageRule], kind: type[LayoutFrame]) -> str:
    """Return the name of a function, which no other class has."""
    same = [each for each in rules if each.__name__ == kind.__name__]
    return f"message_of_{kind.__name__}" + (f"_{same.index(kind) + 1}" if len(same) > 1 else "")
