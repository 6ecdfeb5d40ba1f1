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

  Nothing that a client sends raises. A type that the policy does not name, or that is no text at all, is charged to the
  tier for unknown actions (policy `:hub`: `:normal`). An agent is a binary, a whole number or an atom; an id that is
  empty or longer than 256 bytes is limited by its SHA-256.
  """

  alias Tollgate.{Actions, Id, Instance, JSON, Verdict}

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
      iex> Tollgate.Socket.message(Tollgate, 3, %{"not" => "a type"})
      :allow
  """
  @spec message(Tollgate.instance(), Tollgate.agent() | integer | atom, term) ::
          :allow | {:warn, String.t()} | {:deny, String.t()}
  def message(instance, agent, type)
  def message(_instance, nil, _type), do: :allow

  def message(instance, agent, type) do
    {_, _, _, aux} = entry = Instance.entry(instance)

    case Verdict.decide(entry, instance, Id.agent(agent), "ws", Actions.text(type), 1, nil) do
      {:allow, _, _, _, _, _, _, _, _} -> :allow
      {:warn, lane, remaining, capacity, _, _, _, _, _} -> {:warn, warning(aux, lane, remaining, capacity)}
      {:deny, lane, _, _, wait, _, _, _, _} -> {:deny, denied(aux, lane, wait)}
      # No record is free for a newcomer: it has to come back.
      {:error, _reason, lane} -> {:deny, denied(aux, lane, 1_000)}
      _exempt -> :allow
    end
  end

  defp warning(aux, lane, remaining, capacity) do
    {_, _, %{warning: start}} = elem(aux.lanes, lane)
    <<start::binary, Integer.to_string(remaining)::binary, ",\"capacity\":", Integer.to_string(capacity)::binary, ?}>>
  end

  defp denied(aux, lane, wait) do
    {_, _, %{denial: ending}} = elem(aux.lanes, lane)
    wait = if is_integer(wait), do: Integer.to_string(wait), else: "null"
    <<"{\"type\":\"rate_limited\",\"retry_after_ms\":", wait::binary, ending::binary>>
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
