defmodule Tollgate.Config do
  @moduledoc """
  The tiers of the hub's actions, and the limits of its tiers, by the policy of an instance.
  """

  require Logger

  alias Tollgate.{Instance, Native, Policy}

  @doc """
  The tier of a WebSocket message. One that the policy does not name is `:normal`, and is told in the log once, so that
  somebody classifies it.

      iex> Tollgate.Config.ws_tier("ping")
      :light
      iex> Tollgate.Config.ws_tier(:task_complete)
      :normal
      iex> Tollgate.Config.ws_tier("identify")
      :heavy
  """
  @spec ws_tier(Tollgate.instance(), String.t() | atom) :: Tollgate.tier()
  def ws_tier(instance \\ Tollgate, action), do: tier(instance, :ws, action)

  @doc """
  The tier of an HTTP action, such as `get_agents` or `post_task`; see `ws_tier/1`.

      iex> Tollgate.Config.http_tier("post_task")
      :heavy
  """
  @spec http_tier(Tollgate.instance(), String.t() | atom) :: Tollgate.tier()
  def http_tier(instance \\ Tollgate, action), do: tier(instance, :http, action)

  @doc "The tier of an action of any channel; see `ws_tier/1`."
  @spec tier(Tollgate.instance(), Tollgate.channel(), String.t() | atom) :: Tollgate.tier()
  def tier(instance, channel, action) do
    {reference, _} = Instance.find(instance)
    action = readable(action)

    case Native.lane_for(reference, Atom.to_string(channel), action) do
      nil ->
        raise ArgumentError,
              "the policy of #{inspect(instance)} classifies no actions of the channel #{inspect(channel)}"

      {_lane, tier, _known, first_seen} ->
        if first_seen do
          Logger.warning("the policy does not name the action #{inspect(action)} of #{channel}: it goes to #{tier}")
        end

        tier
    end
  end

  @doc """
  The limit of a tier by the policy: capacity, and refill a millisecond, both in thousandths of a token.

      iex> Tollgate.Config.defaults(:light)
      {120_000, 2.0}
      iex> {10_000, heavy} = Tollgate.Config.defaults(:heavy)
      iex> Float.round(heavy, 4)
      0.1667
  """
  @spec defaults(Tollgate.instance(), Tollgate.tier()) :: {non_neg_integer, float}
  def defaults(instance \\ Tollgate, tier) do
    {reference, _} = Instance.find(instance)

    case Enum.find(Native.lanes(reference), fn {name, _limit} -> elem(Policy.pair(name), 1) == tier end) do
      nil -> raise ArgumentError, "the policy of #{inspect(instance)} has no tier #{inspect(tier)}"
      {_name, limit} -> in_thousandths(limit)
    end
  end

  @doc false
  def in_thousandths(limit) do
    {capacity, tokens, per_ns} = Policy.numbers(limit)
    {capacity * 1_000, tokens * 1_000 / (per_ns / 1_000_000)}
  end

  # What a client sends may be anything; the limiter takes texts.
  defp readable(action) when is_atom(action), do: Atom.to_string(action)

  defp readable(action) when is_binary(action) do
    action = binary_part(action, 0, min(byte_size(action), 256))
    if String.valid?(action), do: action, else: inspect(action)
  end

  defp readable(other), do: raise(ArgumentError, "an action is a text or an atom, got: #{inspect(other)}")
end
