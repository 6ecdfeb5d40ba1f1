defmodule Tollgate.Socket do
  @moduledoc """
  Limits WebSocket messages.

      # after the message was validated, before it is handled
      case Tollgate.Socket.message(MyApp.Limiter, state.agent_id, message["type"]) do
        :allow -> handle(message, state)
        {:warn, frame} -> push(frame) && handle(message, state)
        {:deny, frame} -> push(frame)
      end

  Frames are JSON texts:

      {"type":"rate_limit_warning","tier":"normal","remaining":11,"capacity":60}
      {"type":"rate_limited","retry_after_ms":6000,"tier":"heavy"}

  A denial never closes a connection. Call this after a message was validated, so that an invalid one costs nothing.
  """

  alias Tollgate.{Actions, JSON, Verdict}

  @doc """
  May this message go on? A denial counts against the agent's conduct.

  An agent that has not identified itself is `nil`. There is nobody to limit then, so its `identify` passes; refusing
  whatever else it sends is up to the caller.

      iex> Tollgate.Socket.message(Tollgate, "agent-3", "ping")
      :allow
      iex> for _ <- 1..8, do: Tollgate.Socket.message(Tollgate, "agent-3", "identify")
      iex> Tollgate.Socket.message(Tollgate, "agent-3", "identify")
      {:warn, ~s({"type":"rate_limit_warning","tier":"heavy","remaining":1,"capacity":10})}
      iex> Tollgate.Socket.message(Tollgate, "agent-3", "identify")
      iex> Tollgate.Socket.message(Tollgate, "agent-3", "identify")
      {:deny, ~s({"type":"rate_limited","retry_after_ms":6000,"tier":"heavy"})}
      iex> Tollgate.Socket.message(Tollgate, nil, "identify")
      :allow
  """
  @spec message(Tollgate.instance(), Tollgate.agent() | nil, String.t() | atom) ::
          :allow | {:warn, String.t()} | {:deny, String.t()}
  def message(instance, agent, type)
  def message(_instance, nil, _type), do: :allow

  def message(instance, agent, type) do
    {_, tier} = lane = Actions.lane_for(instance, :ws, type)

    case Verdict.ask(instance, agent, lane, counted: true) do
      %{decision: :warn, remaining: remaining, capacity: capacity} -> {:warn, warning(tier, remaining, capacity)}
      %{decision: :deny, retry_after_ms: wait} -> {:deny, denial(tier, wait)}
      # No record is free for a newcomer: it has to come back.
      {:error, _} -> {:deny, denial(tier, 1_000)}
      _ -> :allow
    end
  end

  @doc "The frame for an agent that is near its limit."
  @spec warning(Tollgate.tier(), non_neg_integer, non_neg_integer) :: String.t()
  def warning(tier, remaining, capacity) do
    JSON.encode(type: "rate_limit_warning", tier: tier, remaining: remaining, capacity: capacity)
  end

  @doc "The frame for an agent whose message was dropped: when to try again, or `null` if no wait helps."
  @spec denial(Tollgate.tier(), pos_integer | :infinity) :: String.t()
  def denial(tier, retry_after_ms), do: JSON.encode(type: "rate_limited", retry_after_ms: retry_after_ms, tier: tier)
end
