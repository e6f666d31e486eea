"""Algorithms are found by their class: those of the library, of other packages, and of any module."""

from importlib import metadata

import pytest

import understudy as us
from support.algorithms import Classifier
from understudy import algorithms
from understudy.core.errors import AlgorithmError, NeedsError, UnknownNameError


@pytest.fixture
def entry_points(monkeypatch):
    """Entry points of other packages: name → "module:Class"."""

    def install(**points):
        found = [metadata.EntryPoint(name, value, algorithms.GROUP) for name, value in points.items()]
        monkeypatch.setattr(
            algorithms.metadata, "entry_points", lambda group: found if group == algorithms.GROUP else []
        )

    return install


def test_every_algorithm_is_an_attribute_of_the_package():
    for name, cls in us.ALGORITHMS.items():
        assert getattr(us, name) is cls is algorithms.find(name)
        assert name in dir(us)
    with pytest.raises(AttributeError, match="no_such"):
        _ = us.no_such


def test_an_entry_point_adds_an_algorithm_and_the_librarys_own_names_win(entry_points):
    entry_points(classifier="support.algorithms:Classifier", bc="support.algorithms:Classifier")
    assert algorithms.find("classifier") is Classifier
    assert us.available()["classifier"] is Classifier
    assert algorithms.find("bc") is us.bc is us.available()["bc"]


@pytest.mark.parametrize("value", ["no_such_module:Mine", "support.algorithms:Missing", "support.algorithms:jnp"])
def test_a_broken_entry_point_is_named(entry_points, value):
    entry_points(mine=value)
    with pytest.raises(AlgorithmError, match="'mine'"):
        algorithms.find("mine")
    assert algorithms.find("bc") is us.bc


def test_a_module_and_class_name_an_algorithm():
    assert algorithms.find("support.algorithms:Classifier") is Classifier
    for wrong in ("no_such_module:Mine", "support.algorithms:Missing"):
        with pytest.raises(NeedsError, match=wrong):
            algorithms.find(wrong)
    with pytest.raises(AlgorithmError, match="a subclass of understudy"):
        algorithms.find("support.algorithms:jnp")
    with pytest.raises(UnknownNameError, match="'daggr'"):
        algorithms.find("daggr")
