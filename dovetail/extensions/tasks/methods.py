"""The methods of the tasks extension; the core form has its own rows in `protocol/methods.py`.
https://modelcontextprotocol.io/seps/2663-tasks-extension"""

from ...protocol.base import EmptyResult
from ...protocol.methods import Method
from ...protocol.tasks import DetailedTask, TaskChangedParams, TaskParams, UpdateTaskParams

GET = Method("tasks/get", "client", TaskParams, DetailedTask, named="task_id")
UPDATE = Method("tasks/update", "client", UpdateTaskParams, EmptyResult, named="task_id")
CANCEL = Method("tasks/cancel", "client", TaskParams, EmptyResult, named="task_id")
CHANGED = Method("notifications/tasks", "server", TaskChangedParams)
METHODS = (GET, UPDATE, CANCEL, CHANGED)
