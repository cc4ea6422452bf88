"""What a handler may ask for by name: `view`, `parts`, `person`, `form`; see `admin.app`.

Parameters of a path and of a query are `FromPath[…]` and `FromQuery[…]` of `litestar.params`.
"""

from __future__ import annotations

from litestar.di import NamedDependency

from admin.access import Person
from admin.parts import ConsoleParts
from admin.web.forms import SentForm
from admin.web.view import View

GivenView = NamedDependency[View]
GivenParts = NamedDependency[ConsoleParts]
GivenPerson = NamedDependency[Person]
GivenForm = NamedDependency[SentForm]
