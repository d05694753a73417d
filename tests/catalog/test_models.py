"""The table of models: whole, and every number in its place."""

from rooftop.catalog.models import known


def test_every_model_is_whole() -> None:
    assert [weights.name for weights in known()] == ["smollm2-135m"]
    for weights in known():
        assert weights.package.count("==") == 1
        assert weights.member.endswith(weights.file)
        assert weights.bytes > 0
        assert len(weights.sha256) == 64
        assert set(weights.sha256) <= set("0123456789abcdef")
        assert weights.licence
