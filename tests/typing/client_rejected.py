"""What users of a client may write by mistake and type checkers reject, in each line that ends with
`# error`. This file is checked, not run."""

from dovetail import Client, ElicitRequest, SampleRequest

Client(3)  # error
Client("x", on_elict=print)  # error
Client("x", validate="maybe")  # error
Client("x", timeout="5")  # error
Client("x", headers=["a"])  # error


def ask(request: ElicitRequest) -> None:
    print(request.messages)  # error


def answer(request: SampleRequest) -> str:
    return request.message  # error


Client("x", on_elicit=answer)  # error
Client("x", on_sample=ask)  # error


async def use(client: Client) -> None:
    await client.call_tool("x", retries=3)  # error
    result = await client.call_tool("x", type=int)
    print(result.data.upper())  # error
    client.on_change("tool", print)  # error
    await client.complete(prompt="x")  # error
    with client:  # error
        pass


def use_blocking(client: Client) -> None:
    with client.blocking() as blocking:
        blocking.list_tools(stale=True)  # error
        blocking.start_tool(3)  # error
        blocking.call_tool("x", type=int).data.upper()  # error
