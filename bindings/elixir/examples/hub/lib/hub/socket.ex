defmodule Hub.Socket do
  @moduledoc "A connection of an agent. Its state is who it is, or `nil` before it has said so."

  @behaviour WebSock

  @impl WebSock
  def init(state) do
    if state.agent, do: Hub.Scheduler.joined(state.agent)
    {:ok, state}
  end

  @impl WebSock
  def handle_in({text, [opcode: :text]}, state) do
    # A message that is not valid costs nothing.
    case Jason.decode(text) do
      {:ok, %{"type" => type} = message} -> limited(type, message, state)
      _ -> {:push, {:text, ~s({"type":"error","error":"a message is a JSON object with a type"})}, state}
    end
  end

  def handle_in(_binary, state), do: {:ok, state}

  defp limited(type, message, state) do
    case Tollgate.Socket.message(Hub.Limiter, state.agent, type) do
      :allow -> handle(message, [], state)
      {:warn, frame} -> handle(message, [{:text, frame}], state)
      # It stays connected.
      {:deny, frame} -> {:push, {:text, frame}, state}
    end
  end

  defp handle(%{"type" => "identify", "agent_id" => agent}, frames, %{agent: nil} = state) when is_binary(agent) do
    Hub.Scheduler.joined(agent)
    push(frames ++ [{:text, ~s({"type":"identified"})}], %{state | agent: agent})
  end

  defp handle(_message, _frames, %{agent: nil} = state),
    do: push([{:text, ~s({"type":"error","error":"identify first"})}], state)

  defp handle(%{"type" => "ping"}, frames, state), do: push(frames ++ [{:text, ~s({"type":"pong"})}], state)

  defp handle(%{"type" => "message"} = message, frames, state) do
    Phoenix.PubSub.broadcast(Hub.PubSub, "messages", {:message, state.agent, message["text"]})
    push(frames, state)
  end

  defp handle(_message, frames, state), do: push(frames, state)

  defp push([], state), do: {:ok, state}
  defp push(frames, state), do: {:push, frames, state}

  @impl WebSock
  def handle_info(_message, state), do: {:ok, state}

  @impl WebSock
  def terminate(_reason, _state), do: :ok
end
