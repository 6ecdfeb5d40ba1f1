defmodule Tollgate.Id do
  @moduledoc false
  # Ids that a client may have chosen, as the limiter takes them: 1 to 256 bytes.

  # The verbs themselves take binaries. `Tollgate.Plug`, `Tollgate.Socket` and `Tollgate.Hub` take what a hub has at
  # hand: a number and an atom are their text. A longer id, and an empty one, is its hash, the same in all of them.
  def agent(id) when is_binary(id) and byte_size(id) in 1..256, do: id
  def agent(id) when is_binary(id), do: "sha256:" <> Base.encode16(:crypto.hash(:sha256, id))
  def agent(id) when is_integer(id), do: id |> Integer.to_string() |> agent()
  def agent(id) when is_atom(id) and id not in [nil, true, false], do: id |> Atom.to_string() |> agent()

  def agent(other) do
    raise ArgumentError, "an agent is a binary, a whole number or an atom, got: #{inspect(other)}"
  end

  # A client's address as an agent: IPv4 as it is, IPv6 by its /64. All peers of a Unix socket are one agent: the system
  # gives them no address.
  def address({_, _, _, _} = v4), do: "ip:" <> to_string(:inet.ntoa(v4))

  def address({0, 0, 0, 0, 0, 0xFFFF, high, low}) do
    <<a, b, c, d>> = <<high::16, low::16>>
    address({a, b, c, d})
  end

  def address({a, b, c, d, _, _, _, _}), do: "ip:" <> to_string(:inet.ntoa({a, b, c, d, 0, 0, 0, 0})) <> "/64"
  def address(_), do: "unix"
end
