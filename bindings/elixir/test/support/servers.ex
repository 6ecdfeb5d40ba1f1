defmodule WebSock do
  @moduledoc "The behaviour of a WebSocket handler, as in the package websock."

  @type state :: term
  @callback init(term) :: term
  @callback handle_in({binary, opcode: atom}, state) :: term
  @callback handle_info(term, state) :: term
  @callback terminate(term, state) :: term
end

defmodule WebSockAdapter do
  @moduledoc "A stand-in for websock_adapter: notes to whom the connection would be given."

  def upgrade(%Plug.Conn{} = conn, handler, state, options) when is_atom(handler) and is_list(options) do
    Plug.Conn.halt(%{conn | state: :upgraded, private: Map.put(conn.private, :upgraded, {handler, state})})
  end
end
