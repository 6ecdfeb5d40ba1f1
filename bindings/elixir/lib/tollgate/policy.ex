defmodule Tollgate.Policy do
  @moduledoc """
  What is limited, and to what: the option `policy:` of an instance.

    * `:hub`, `:platform`, `:adr`, `:citizen` or `:standard`: a preset;
    * `{:toml, text}`: the text of a policy file, as every language reads it;
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

  Only `lanes` is required. A lane is named `channel/tier`, and `Tollgate.check/4` takes it as `{:channel, :tier}`. A
  limit is text:

  | text | promise |
  |---|---|
  | `"10/second burst 20"`, `"5 per 5 minutes"` | a bucket: 20 at once, 10 per second in the long run |
  | `"10/second burst 20 oversize debt"` | the same; a cost above 20 passes when the bucket is full, and is paid off before the next passes |
  | `"window 1000/minute"` | never more than 1,000 in any minute; a charge counts for 60 to 80 seconds |
  | `"exact 5/5min"` | never more than 5 in any 5 minutes, exactly; up to 128 |
  | `"budget 10_000/day"`, `"budget 5_000/month zone +02:00"` | an amount per hour, day, week or month of the calendar |
  | `"dynamic"`, `"dynamic 60/minute"` | what each call brings as its `limit:`; else 60 per minute, or an error |
  | `"held 3"` | 3 at once, until they are released: see `Tollgate.hold/4` |
  | `"deny"` | nothing passes |
  | `"unlimited"` | no total; for the lane `"total"` alone |

  A lane keeps its kind in every plan and override.

  The lane `"total"`, in a plan or among the lanes, is a limit over all lanes: a check charges its lane and the total,
  both or neither, and its verdict has the numbers of the one with less left. The total does not count slots that are
  held, nor the lanes that `outside_total: ["llm/tokens"]` names. It cannot be charged by itself; `Tollgate.peek/4`,
  `Tollgate.reset/3` and overrides know it as `{nil, :total}`.

  `on_change` says what happens to what an agent has used when its limits change: `:keep` it, or `:reset`, which fills
  its lanes. `conduct` has the rules of `Tollgate.Conduct`: with `curve_ms` the wait grows from one violation to the
  next; without it, a wait is the lane's own. `every_denial: true` makes every counted denial a violation, as in the
  policy `:hub`; otherwise only one of an agent that came back before its wait was over is. `enforce_wait: true` makes
  the wait a block: until it is over, counted requests are denied on every lane.

  `version: 7` is for instances that are `shared:`: of two policies, the one with the higher version is in force.
  """

  @typedoc "Such as `\"10/second burst 20\"` or `\"deny\"`."
  @type limit :: String.t()
  @type t :: atom | {:toml, String.t()} | keyword

  @keys [:lanes, :plans, :outside_total, :actions, :unknown_actions_to, :warn_below_percent, :on_change, :conduct] ++
          [:version]
  @conduct [:curve_ms, :quiet_ms, :abuse_violations, :abuse_within_ms, :every_denial, :enforce_wait]

  @doc false
  # What the NIF reads: the name of a preset, or TOML.
  def source(preset) when is_atom(preset), do: {:preset, Atom.to_string(preset)}
  def source({:toml, text}) when is_binary(text), do: {:toml, text}

  def source(options) when is_list(options) do
    unless Keyword.keyword?(options), do: wrong("a policy is a keyword list", options)

    case Keyword.keys(options) -- @keys do
      [] -> :ok
      unknown -> wrong("a policy has the keys #{inspect(@keys)}", unknown)
    end

    # In the order of the keys: in TOML, values come before tables.
    keys =
      [:version, :outside_total, :unknown_actions_to, :warn_below_percent, :on_change] ++
        [:lanes, :plans, :actions, :conduct]

    {:toml, for(key <- keys, value <- Keyword.get_values(options, key), into: "", do: toml(key, value))}
  end

  def source(other), do: wrong("a policy is the name of a preset, {:toml, text} or a keyword list", other)

  defp toml(:version, version) when version in 0..0xFFFF_FFFF, do: "version = #{version}\n"
  defp toml(:outside_total, lanes) when is_list(lanes), do: "outside_total = #{strings(lanes)}\n"
  defp toml(:unknown_actions_to, tier), do: "unknown_actions_to = #{string(tier)}\n"
  defp toml(:warn_below_percent, percent) when percent in 0..100, do: "warn_below_percent = #{percent}\n"
  defp toml(:on_change, on_change) when on_change in [:keep, :reset], do: "on_change = #{string(on_change)}\n"
  defp toml(:lanes, lanes), do: "[lanes]\n" <> limits(lanes)

  defp toml(:plans, plans) when is_list(plans) do
    for plan <- plans, into: "" do
      case plan do
        {name, limits} -> "[plans.#{string(name)}]\n" <> limits(limits)
        other -> wrong("a plan is a pair of its name and its limits", other)
      end
    end
  end

  defp toml(:actions, actions) when is_list(actions) do
    tiers =
      for line <- actions do
        case line do
          {channel, tier, names} when is_list(names) -> {string(channel), string(tier), names}
          other -> wrong("actions are given as {channel, tier, names}", other)
        end
      end

    for {channel, tiers} <- Enum.group_by(tiers, &elem(&1, 0)), into: "" do
      lines =
        for {tier, lists} <- Enum.group_by(tiers, &elem(&1, 1), &elem(&1, 2)), into: "" do
          "#{tier} = #{strings(Enum.concat(lists))}\n"
        end

      "[actions.#{channel}]\n" <> lines
    end
  end

  defp toml(:conduct, rules) do
    unless Keyword.keyword?(rules) and Keyword.keys(rules) -- @conduct == [] do
      wrong("conduct has the keys #{inspect(@conduct)}", rules)
    end

    curve = for step <- Keyword.get(rules, :curve_ms, []), do: span(:curve_ms, step)
    violations = Keyword.get(rules, :abuse_violations, 10)
    unless is_integer(violations) and violations in 1..63, do: wrong("abuse_violations is from 1 to 63", violations)
    within = span(:abuse_within_ms, Keyword.get(rules, :abuse_within_ms, 300_000))

    """
    [conduct]
    curve = [#{Enum.join(curve, ", ")}]
    quiet = #{span(:quiet_ms, Keyword.get(rules, :quiet_ms, 60_000))}
    abuse = { violations = #{violations}, within = #{within} }
    every_denial = #{rules[:every_denial] == true}
    enforce_wait = #{rules[:enforce_wait] == true}
    """
  end

  defp toml(:version, other), do: wrong("version has to be a whole number below 2^32", other)
  defp toml(:warn_below_percent, other), do: wrong("warn_below_percent has to be from 0 to 100", other)
  defp toml(:on_change, other), do: wrong("on_change has to be :keep or :reset", other)
  defp toml(key, other), do: wrong("#{key} has to be a list", other)

  defp limits(limits) when is_list(limits) or is_map(limits) do
    for limit <- limits, into: "" do
      case limit do
        {name, limit} when is_binary(limit) -> "#{string(name)} = #{string(limit)}\n"
        other -> wrong("a lane is a pair of its name and the text of its limit", other)
      end
    end
  end

  defp limits(other), do: wrong("lanes are a list of pairs of a name and a limit", other)

  defp strings(names), do: "[" <> Enum.map_join(names, ", ", &string/1) <> "]"

  # What JSON writes as a string is one in TOML too.
  defp string(name) when is_binary(name) do
    if String.valid?(name), do: Tollgate.JSON.encode(name), else: wrong("a name is UTF-8", name)
  end

  defp string(name) when is_atom(name) and name not in [nil, true, false], do: string(Atom.to_string(name))
  defp string(other), do: wrong("a name is a string or an atom", other)

  defp span(_key, ms) when is_integer(ms) and ms > 0 and ms < 1_000_000_000_000, do: ~s("#{ms}ms")
  defp span(key, other), do: wrong("#{key} has to be a positive number of milliseconds", other)

  defp wrong(rule, given), do: raise(ArgumentError, "#{rule}, got: #{inspect(given)}")

  @doc false
  # A policy as the limiter writes it, with other limits for some of its lanes.
  def with_limits(toml, limits) do
    [before, lanes] = String.split(toml, ~r/^\[lanes\]\n/m, parts: 2)
    {lanes, rest} = lanes |> String.split("\n") |> Enum.split_while(&(not String.starts_with?(&1, "[")))

    lanes =
      for line <- lanes do
        case Enum.find(limits, fn {name, _} -> String.starts_with?(line, [string(name) <> " = ", name <> " = "]) end) do
          {name, limit} -> string(name) <> " = " <> string(limit)
          nil -> line
        end
      end

    Enum.join([before, "[lanes]\n", Enum.join(lanes ++ rest, "\n")])
  end

  @doc false
  # A lane's name as Elixir knows it. A policy has at most 62 lanes, and only an
  # operator names them, so the atoms are few.
  def pair(name), do: pair(name, &String.to_atom/1)

  @doc false
  # The same for a name that may come from anywhere: one that is not known stays as it is.
  def lane(name) when is_binary(name) do
    pair(name, &String.to_existing_atom/1)
  rescue
    ArgumentError -> name
  end

  def lane(lane), do: lane

  defp pair(name, atom) do
    case :binary.matches(name, "/") do
      [] ->
        {nil, atom.(name)}

      slashes ->
        {at, 1} = List.last(slashes)
        <<channel::binary-size(at), ?/, tier::binary>> = name
        {atom.(channel), atom.(tier)}
    end
  end

  @doc false
  # And the name of a lane in the policy.
  def name({nil, tier}), do: Atom.to_string(tier)
  def name({channel, tier}), do: "#{channel}/#{tier}"
end
