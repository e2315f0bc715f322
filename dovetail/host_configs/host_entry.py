    """
    shape = host.shape
    extra = shape.in_user_file if scope == "user" else {}
    if server.url is not None:
        if shape.url is None:
            raise ConfigError(f"{host.title} starts commands only, so it cannot use a URL")
        remote = _not_empty({shape.url: server.url, shape.headers: server.headers})
        return _filled(shape.with_url, name) | remote | dict(extra)
    if shape.args is None:
        command: dict[str, Any] = {shape.command: [server.command or "", *server.args]}
    else:
        command = {shape.command: server.command or "", shape.args: server.args}
    fields: dict[str, Any] = {shape.env: {**server.env, **_references(server, host, name)}}
    if shape.names is not None:
        fields[shape.names] = server.env_vars
    return _filled(shape.with_command, name) | command | _not_empty(fields) | dict(extra)


def can_reference(host: HostApp) -> bool:
    """Whether an entry of the host can name a variable instead of holding its value."""
    return host.shape.reference is not None or host.shape.names is not None


def _references(server: ServerConfig, host: HostApp, name: str) -> dict[str, str]:
    if not server.env_vars or host.shape.names is not None:
        return {}
    if host.shape.reference is None:
        raise ConfigError(
            f"{host.title} cannot name an environment variable, so its file has to hold the value "
            f"of {', '.join(server.env_vars)}"
        )
