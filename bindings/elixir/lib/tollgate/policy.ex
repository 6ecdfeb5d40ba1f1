defmodule Tollgate.Policy do
  @moduledoc """
  What is limited, and to what: the option `policy:` of an instance.

    * `:hub`, `:platform`, `:adr`, `:citizen` or `:standard`: a ready-made one;
    * `{:toml, text}`: a policy file's text, which may also say `warn_again_percent` and `exempt`;
    * a keyword list:

          [
            lanes: [{"api/read", "100/minute burst 150"}, {"api/write", "20/minute"}],
            plans: [{"free", [{"total", "50/minute"}]}, {"pro", [{"api/write", "200/minute"}]}],
            actions: [{"api", "read", ["get_task", "list_tasks"]}, {"api", "write", ["post_task"]}],
            unknown_actions_to: "write",
            warn_below_percent: 20,
            on_change: :keep,
            conduct: [curve_ms: [1_000, 2_000, 5_000], quiet_ms: 60_000, abuse_violations: 10, abuse_within_ms: 300_000]
          ]

  A lane is named `channel/tier`; `Tollgate.check/3` takes both as atoms. A lane without a slash has the channel `nil`.
  A limit is a text:

  | text | promises |
  |---|---|
  | `"10/second burst 20"`, `"5 per 5 minutes"` | a bucket: 20 at once, 10 a second in the long run |
  | `"10/second burst 20 oversize debt"` | the same; a cost above 20 passes when the bucket is full, and has to be paid for before the next passes |
  | `"window 1000/minute"` | never more than 1,000 in any minute, at two words; a charge counts for 60 to 80 seconds |
  | `"exact 5/5min"` | never more than 5 in any 5 minutes; up to 128, 8 bytes each of every agent's record |
  | `"budget 10_000/day"`, `"budget 5_000/month zone +02:00"` | so many an hour, day, week or month of the calendar |
  | `"held 3"` | 3 at once, until they are given back: see `Tollgate.hold/3` |
  | `"deny"` | nothing |
  | `"unlimited"` | everything; for the total alone |

  The lane `"total"`, in a plan or among the lanes, is a limit over all lanes: a check charges its lane and the total,
  both or neither, and tells the numbers of whichever has less left. What is held is not counted, nor are the lanes
  that `outside_total: ["llm/tokens"]` names. Nobody charges the total by itself; status, overrides and resets know
  it as `{nil, :total}`.

  A lane keeps its kind in every plan and override. Only `lanes` is needed. `on_change` says what becomes of an agent's
  debt when its limits change: `:keep`, or `:reset`, which fills its lanes. An agent violates a limit if it comes back
  before its wait is over and is denied again. `conduct` says what follows: with `curve_ms` the wait becomes longer from
  one violation to the next; without it, a wait is the lane's own. `every_denial: true` counts every denial, as the hub
  does, and `enforce_wait: true` makes the wait of a violation a block: until it is over, `Tollgate.admit/3` denies on
  every lane.
  """

  @typedoc "Such as `\"10/second burst 20\"` or `\"deny\"`."
  @type limit :: String.t()
  @type t :: atom | {:toml, String.t()} | keyword

  @keys [:lanes, :plans, :outside_total, :actions, :unknown_actions_to, :warn_below_percent, :on_change, :conduct]
  @conduct [:curve_ms, :quiet_ms, :abuse_violations, :abuse_within_ms, :every_denial, :enforce_wait]

  @doc false
  # What c_src/policy.c reads.
  def lines(preset) when is_atom(preset), do: {:preset, Atom.to_string(preset)}
  def lines({:toml, text}) when is_binary(text), do: {:toml, text}

  def lines(options) when is_list(options) do
    unless Keyword.keyword?(options), do: wrong("a policy is a keyword list", options)

    case Keyword.keys(options) -- @keys do
      [] -> Enum.flat_map(options, &of_key/1)
      unknown -> wrong("a policy has the keys #{inspect(@keys)}", unknown)
    end
  end

  def lines(other), do: wrong("a policy is the name of a preset, {:toml, text} or a keyword list", other)

  defp of_key({:lanes, lanes}), do: for({name, limit} <- pairs(lanes), do: {:lane, name, limit})

  defp of_key({:plans, plans}) when is_list(plans) do
    Enum.map(plans, fn
      {name, limits} -> {:plan, text(name), pairs(limits)}
      other -> wrong("a plan is a pair of its name and its limits", other)
    end)
  end

  defp of_key({:actions, actions}) when is_list(actions) do
    Enum.map(actions, fn
      {channel, tier, names} when is_list(names) -> {:actions, text(channel), text(tier), Enum.map(names, &text/1)}
      other -> wrong("actions are given as {channel, tier, names}", other)
    end)
  end

  defp of_key({:outside_total, lanes}) when is_list(lanes), do: for(lane <- lanes, do: {:outside_total, text(lane)})
  defp of_key({:unknown_actions_to, tier}), do: [{:unknown_actions_to, text(tier)}]
  defp of_key({:warn_below_percent, percent}) when percent in 0..100, do: [{:warn_below_percent, percent}]
  defp of_key({:on_change, on_change}) when on_change in [:keep, :reset], do: [{:on_change, on_change}]

  defp of_key({:conduct, rules}) do
    unless Keyword.keyword?(rules) and Keyword.keys(rules) -- @conduct == [] do
      wrong("conduct has the keys #{inspect(@conduct)}", rules)
    end

    curve = for step <- Keyword.get(rules, :curve_ms, []), do: span(:curve_ms, step)
    quiet = span(:quiet_ms, Keyword.get(rules, :quiet_ms, 60_000))
    violations = Keyword.get(rules, :abuse_violations, 10)
    window = span(:abuse_within_ms, Keyword.get(rules, :abuse_within_ms, 300_000))
    unless is_integer(violations) and violations in 1..63, do: wrong("abuse_violations is from 1 to 63", violations)
    if length(curve) > 15, do: wrong("a curve has up to 15 steps", curve)
    [{:conduct, curve, quiet, violations, window, rules[:every_denial] == true, rules[:enforce_wait] == true}]
  end

  defp of_key({:warn_below_percent, other}), do: wrong("warn_below_percent has to be from 0 to 100", other)
  defp of_key({:on_change, other}), do: wrong("on_change has to be :keep or :reset", other)
  defp of_key({key, other}), do: wrong("#{key} has to be a list", other)

  defp pairs(limits) when is_list(limits) or is_map(limits) do
    Enum.map(limits, fn
      {name, limit} when is_binary(limit) -> {text(name), limit}
      other -> wrong("a lane is a pair of its name and the text of its limit", other)
    end)
  end

  defp pairs(other), do: wrong("lanes are a list of pairs of a name and a limit", other)

  defp text(name) when is_binary(name), do: name
  defp text(name) when is_atom(name) and name not in [nil, true, false], do: Atom.to_string(name)
  defp text(other), do: wrong("a name is a text or an atom", other)

  # The limiter takes 0 for "as usual", so it has to be refused here.
  defp span(_key, ms) when is_integer(ms) and ms > 0 and ms < 1_000_000_000_000, do: ms * 1_000_000
  defp span(key, other), do: wrong("#{key} has to be a positive number of milliseconds", other)

  defp wrong(rule, given), do: raise(ArgumentError, "#{rule}, got: #{inspect(given)}")

  @doc false
  # How a lane is called in Elixir. A policy has at most 62 lanes, and only an
  # operator names them, so the atoms are few.
  def pair(name) do
    case :binary.matches(name, "/") do
      [] ->
        {nil, String.to_atom(name)}

      slashes ->
        {at, 1} = List.last(slashes)
        <<channel::binary-size(at), ?/, tier::binary>> = name
        {String.to_atom(channel), String.to_atom(tier)}
    end
  end

  @doc false
  # And how Elixir's name is called in the policy.
  def name({nil, tier}), do: Atom.to_string(tier)
  def name({channel, tier}), do: "#{channel}/#{tier}"

  @units %{
    # A month of a budget is as long as the calendar says; told as a rate, it has 30 days.
    "month" => 2_592_000_000_000_000,
    "week" => 604_800_000_000_000,
    "day" => 86_400_000_000_000,
    "d" => 86_400_000_000_000,
    "hour" => 3_600_000_000_000,
    "h" => 3_600_000_000_000,
    "minute" => 60_000_000_000,
    "min" => 60_000_000_000,
    "second" => 1_000_000_000,
    "s" => 1_000_000_000,
    "millisecond" => 1_000_000,
    "ms" => 1_000_000,
    "microsecond" => 1_000,
    "us" => 1_000,
    "nanosecond" => 1,
    "ns" => 1
  }

  @doc false
  # The numbers of a limit as the limiter writes it: `{capacity, tokens, per_ns}`.
  # A window or a budget comes back as a whole; told as a bucket of the same rate. What is held comes back by itself never.
  def numbers("deny"), do: {0, 0, 1}
  def numbers("unlimited"), do: {0xFFFF_FFFF_FFFF_FFFF, 0, 1}
  def numbers("held " <> slots), do: {String.to_integer(slots), 0, 1}

  def numbers(limit) do
    pattern = ~r{^(?:window |exact |budget )?(\d+)/(\d*)([a-z]+)(?: burst (\d+)| zone .*)?$}
    [_, tokens, count, unit | burst] = Regex.run(pattern, limit)
    tokens = String.to_integer(tokens)
    per = if(count == "", do: 1, else: String.to_integer(count)) * Map.fetch!(@units, unit)
    {if(burst == [], do: tokens, else: String.to_integer(hd(burst))), tokens, per}
  end
end
