"""Scripts of the virtual Redis are compiled once.

fakeredis compiles a script at each call, looks through all global variables before each of its commands, and collects all of
Lua's garbage after it. A script that makes a global variable is still refused here, once it has ended.
"""

from typing import Any

from fakeredis.commands_mixins import scripting_mixin

_COUNT = "function() local number = 0; for _ in pairs(_G) do number = number + 1 end; return number end"


class KeptScripts:
    """A Lua of fakeredis that keeps what it has compiled.

    Args:
        lua: A `lupa.LuaRuntime` with all global variables that scripts may use.
    """

    def __init__(self, lua: Any) -> None:
        self._lua = lua
        self._compiled: dict[Any, Any] = {}
        self._count = lua.eval(_COUNT)
        self._num_globals = self._count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lua, name)

    @property
    def has_new_globals(self) -> bool:
        """Whether a script has made a global variable."""
        return self._count() != self._num_globals

    def execute(self, script: Any) -> Any:
        """See `lupa.LuaRuntime.execute`. Lua collects its garbage when it wants to."""
        if script == "collectgarbage()":
            return None
        if script not in self._compiled:
            self._compiled[script] = self._lua.compile(script)
        return self._compiled[script]()


def check_globals_at_end() -> None:
    """Lets fakeredis look for new global variables only when a script has ended."""
    mixin: Any = scripting_mixin
    check = mixin._check_for_lua_globals

    def check_at_end(lua: Any, expected: set[Any]) -> None:
        if isinstance(lua, KeptScripts) and lua.has_new_globals:
            check(lua, expected)

    mixin._check_for_lua_globals = check_at_end
