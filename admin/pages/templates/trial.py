"""`/templates/test`: one real message of a template, sent through an account as the Accounts page does."""

from __future__ import annotations

from litestar import post

from admin.access import OF_ROW, Role, needs
from admin.pages.fleet.accounts import found
from admin.pages.fleet.trials import TrialOrder, trial_page
from admin.pages.templates.shown import given_values, sent_values, template_of
from admin.web.forms import WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page


@post("/templates/test", opt=needs(Role.OPERATOR, OF_ROW), status_code=200, sync_to_thread=True)
def template_trial(
    view: GivenView, parts: GivenParts, person: GivenPerson, form: GivenForm
) -> Page:
    """Sends the template with the form's variables, and shows the exchange. Raises Missing, Forbidden,
    WrongForm."""
    template = template_of(parts, person, form.text("name"))
    lane, _, account = form.required("through").partition(" ")
    row = found(parts, person, account)
    if row.channel != template.channel:
        raise WrongForm("templates.no_account", "through", channel=template.channel)
    params = given_values(template, sent_values(template, form))
    body = {"template": {"id": template.name, "params": params}}
    return trial_page(view, parts, person, form, TrialOrder(row, lane, body, template.name))


HANDLERS = [template_trial]
