defmodule Tollgate.Socket do
  @moduledoc """
  The way of a WebSocket message through the limiter.

      # after the message was found valid, before it is acted upon
      case Tollgate.Socket.message(state.agent_id, message["type"]) do
        :allow -> handle(message, state)
        {:warn, frame} -> push(frame) && handle(message, state)
        {:deny, frame} -> push(frame)
      end

  Frames are JSON texts:

      {"type":"rate_limit_warning","tier":"normal","remaining":11,"capacity":60}
      {"type":"rate_limited","retry_after_ms":6000,"tier":"heavy"}

  A denial never closes a connection, and has nothing to do with counting invalid messages: call this after a message
  was validated, so that an invalid one costs nothing.
  """

  alias Tollgate.JSON

  @doc """
  May this message go on? Counts a denial as a violation.

  An agent that has not identified itself is `nil`: nobody is known who could be limited, so its `identify` goes through,
  and whatever else it sends is for the caller to refuse.

      iex> Tollgate.Socket.message("agent-3", "ping")
      :allow
      iex> for _ <- 1..8, do: Tollgate.Socket.message("agent-3", "identify")
      iex> Tollgate.Socket.message("agent-3", "identify")
      {:warn, ~s({"type":"rate_limit_warning","tier":"heavy","remaining":1,"capacity":10})}
      iex> Tollgate.Socket.message("agent-3", "identify")
      iex> Tollgate.Socket.message("agent-3", "identify")
      {:deny, ~s({"type":"rate_limited","retry_after_ms":6000,"tier":"heavy"})}
      iex> Tollgate.Socket.message(nil, "identify")
      :allow
  """
  @spec message(Tollgate.instance(), Tollgate.agent() | nil, String.t() | atom) ::
          :allow | {:warn, String.t()} | {:deny, String.t()}
  def message(instance \\ Tollgate, agent, type)
  def message(_instance, nil, _type), do: :allow

  def message(instance, agent, type) do
    tier = Tollgate.Config.ws_tier(instance, type)

    case Tollgate.admission(instance, agent, :ws, tier, []) do
      %{decision: :warn, remaining: remaining, capacity: capacity} -> {:warn, warning(tier, remaining, capacity)}
      %{decision: :deny, retry_after_ms: wait} -> {:deny, denial(tier, wait)}
      # There is no room for a newcomer: as little as one may know, it has to come back.
      {:error, _} -> {:deny, denial(tier, 1_000)}
      _ -> :allow
    end
  end

  @doc "The frame that tells an agent that it is near its limit."
  @spec warning(Tollgate.tier(), non_neg_integer, non_neg_integer) :: String.t()
  def warning(tier, remaining, capacity) do
    JSON.encode(type: "rate_limit_warning", tier: tier, remaining: remaining, capacity: capacity)
  end

  @doc "The frame that tells an agent that its message was dropped, and when to try again; `null` if no wait helps."
  @spec denial(Tollgate.tier(), pos_integer | :infinity) :: String.t()
  def denial(tier, retry_after_ms), do: JSON.encode(type: "rate_limited", retry_after_ms: retry_after_ms, tier: tier)
end
