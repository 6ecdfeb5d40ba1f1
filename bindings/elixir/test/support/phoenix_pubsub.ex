defmodule Phoenix.PubSub do
  @moduledoc """
  A stand-in for phoenix_pubsub, which no registry brings here, for one node: what an instance and its tests call. As
  the real one it is a supervised process by name, raises for a server that is not there, and sends a message as it is.
  """

  def child_spec(options), do: Registry.child_spec(keys: :duplicate, name: Keyword.fetch!(options, :name))

  def subscribe(server, topic) when is_atom(server) and is_binary(topic) do
    {:ok, _} = Registry.register(server, topic, nil)
    :ok
  end

  def broadcast(server, topic, message) when is_atom(server) and is_binary(topic) do
    Registry.dispatch(server, topic, fn subscribers -> for {pid, _} <- subscribers, do: send(pid, message) end)
  end
end
