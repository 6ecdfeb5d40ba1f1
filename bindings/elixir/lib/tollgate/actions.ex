defmodule Tollgate.Actions do
  @moduledoc """
  Which lane an action is charged to: `actions` in `Tollgate.Policy`.
  """

  require Logger

  alias Tollgate.{Instance, Native}

  @doc """
  The lane of an action of a channel. An action that the policy does not name goes to the tier of
  `unknown_actions_to`, and is logged once, so that somebody classifies it.

      iex> Tollgate.Actions.lane_for(Tollgate, :http, "post_task")
      {:http, :heavy}
  """
  @spec lane_for(Tollgate.instance(), Tollgate.channel(), String.t() | atom) :: {Tollgate.channel(), Tollgate.tier()}
  def lane_for(instance, channel, action) do
    {reference, _} = Instance.find(instance)
    action = text(action)

    case Native.lane_for(reference, Atom.to_string(channel), action) do
      nil ->
        unclassified(instance, channel)

      {_number, {_, tier} = lane, _known, first_seen} ->
        if first_seen, do: log_unknown(action, channel, tier)
        lane
    end
  end

  @doc false
  def unclassified(instance, channel) do
    raise ArgumentError, "the policy of #{inspect(instance)} classifies no actions of the channel #{channel}"
  end

  @doc false
  def log_unknown(action, channel, tier) do
    Logger.warning("the policy does not name the action #{inspect(action)} of #{channel}: it goes to #{tier}")
  end

  @doc """
  The actions that were asked for and that the policy does not name: their `total` number of requests, up to a few
  hundred `names` as `{channel, action}`, and how many more were `not_listed`.

      iex> Tollgate.start_link(name: Asked)
      iex> Tollgate.Actions.unknown(Asked)
      %{total: 0, names: [], not_listed: 0}
  """
  @spec unknown(Tollgate.instance()) :: %{
          total: non_neg_integer,
          names: [{String.t(), String.t()}],
          not_listed: non_neg_integer
        }
  def unknown(instance) do
    {reference, _} = Instance.find(instance)
    {total, names, not_listed} = Native.unknown_actions(reference)
    %{total: total, names: names, not_listed: not_listed}
  end

  @doc false
  # An action as the limiter takes it: text. What a client sends may be anything, and what is no text has one name, so
  # that no list of names grows by it.
  def text(action) when is_binary(action) and byte_size(action) <= 256, do: valid(action)
  def text(action) when is_binary(action), do: action |> binary_part(0, 256) |> valid()
  def text(action) when is_atom(action) and action not in [nil, true, false], do: Atom.to_string(action)
  def text(_), do: "(no text)"

  defp valid(action), do: if(String.valid?(action), do: action, else: inspect(action))
end
