"""The requests of a login, each of which knows its step."""

from ...ports import AuthStepName, HttpRequest


class StepRequest(HttpRequest, kw_only=True):
    """A request that belongs to a step of a login."""

    step: AuthStepName
