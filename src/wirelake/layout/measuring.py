"""Take measured values from described frames, for the fields of a telemetry message."""

from msgspec.structs import asdict

from wirelake.layout.fields import FieldSpec
from wirelake.layout.frame import LayoutFrame


def measured(frame: LayoutFrame) -> dict[str, int | float | bool]:
    """Return the numeric fields of a frame by name; those that are `scaled`, times their factor.

    Their units are `FrameSet.units`. Constants and fields without a value are left out, and so are numbers of the
    envelope without a unit, which count or tie frames.
    """
    values = asdict(frame)
    carried = () if frame.envelope is None else frame.envelope.carried
    scaled = [field for field in carried if field.scale is not None]
    fields = [field for field in (*scaled, *frame.__layout_fields__) if field.const is None and not field.is_secret]
    numeric = [field for field in fields if isinstance(values[field.name], int | float)]
    return {field.name: _scaled(field, values[field.name]) for field in numeric}


def scale_of(field: FieldSpec) -> tuple[str, float]:
    """Return how a number becomes one in its unit: "/" and a whole number if that is exact, else "*" and the factor."""
    if field.scale is None:
        raise TypeError(f"{field.name} has no unit: mark it as scaled(…)")
    factor = field.scale.factor
    divisor = round(1 / factor)
    # 3 * 0.1 is 0.30000000000000004, but 3 / 10 is 0.3.
    return ("/", divisor) if divisor > 1 and divisor * factor == 1 else ("*", factor)


def _scaled(field: FieldSpec, value: float) -> int | float | bool:
    if field.scale is None:
        return value
    sign, number = scale_of(field)
    return value / number if sign == "/" else value * number
