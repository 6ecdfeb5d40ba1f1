defmodule Tollgate.Observe do
  @moduledoc """
  What an instance holds and has done: counts, agents, worst offenders, a report.

  Counts of verdicts and violations, offenders and lists of agents need `observe: true`. What walks over all records
  runs on a dirty scheduler: it is for operators, and not for the path of a request.
  """

  alias Tollgate.{AgentView, Instance, Native, Policy, Verdict}

  @doc """
  What the instance holds and has done, all at one instant, in all and by lane.

  Without `observe: true`, `observed` is `false` and the counts of verdicts and violations are 0. `lossy_evictions` that
  grow mean that the instance was started for too few agents. `memory` is in bytes; `clock` is what its clock reads:
  `:tsc`, `:os`, `:coarse`, `:boottime` or `:manual`.

  Of an instance that is `shared:`, the counts are those of all VMs. `processes` is how many use it, this one included
  (0 if it is not shared; one that has two instances on the same path counts twice), `takeovers` how often a lock was
  taken over from one that died, `busy` how often a call was answered `:busy`. `policy_differs` is `true` if this
  instance was started with other limits than those in force, `detached` if the file was removed or replaced: VMs that
  start from now on do not share it.

      iex> Tollgate.start_link(name: Counted, observe: true)
      iex> Tollgate.check(Counted, "agent-7", {:ws, :light})
      iex> %{allowed: 1, lanes: %{"ws/light" => %{allowed: 1, denied: 0}}} = Tollgate.Observe.snapshot(Counted)
  """
  @spec snapshot(Tollgate.instance()) :: map
  def snapshot(instance) do
    {reference, _} = Instance.find(instance)
    # By their names, so that any JSON encoder takes it.
    update_in(Native.snapshot(reference).lanes, &Map.new(&1, fn {pair, counts} -> {Policy.name(pair), counts} end))
  end

  @doc """
  The state of all lanes of the agent, and its conduct: see `Tollgate.AgentView`. Charges nothing.

  `plan:` shows the lanes as they are for a request with this plan, if the agent has none assigned.

      iex> Tollgate.check(Tollgate, "agent-2", {:ws, :heavy}, cost: 6)
      iex> %{dominant: lane} = Tollgate.Observe.agent(Tollgate, "agent-2")
      iex> {lane.tier, lane.used_percent, lane.level}
      {:heavy, 60.0, :yellow}
  """
  @spec agent(Tollgate.instance(), Tollgate.agent(), at: non_neg_integer, plan: String.t() | atom) :: AgentView.t()
  def agent(instance, agent, options \\ []) do
    {reference, _} = Instance.find(instance)
    unless Keyword.keyword?(options), do: raise(ArgumentError, "options are a keyword list, got: #{inspect(options)}")
    {plan, options} = Keyword.pop(options, :plan)
    view = AgentView.new(agent, Native.agent(reference, agent, options))
    if plan == nil or view.plan != nil or view.exempt, do: view, else: under(view, reference, name(plan), options)
  end

  defp name(plan) when is_binary(plan), do: plan
  defp name(plan) when is_atom(plan), do: Atom.to_string(plan)
  defp name(other), do: raise(ArgumentError, "a plan is given by its name, got: #{inspect(other)}")

  # Overrides go before a plan.
  defp under(view, reference, plan, options) do
    limits = Native.plan_limits(reference, plan) || raise ArgumentError, "the policy has no plan #{inspect(plan)}"
    limits = Map.new(limits)

    AgentView.with_lanes(view, fn lane ->
      name = Policy.name({lane.channel, lane.tier})
      {remaining, capacity, _, full_in} = Native.peek(reference, view.agent, name, [plan: plan] ++ options)
      limit = if lane.override, do: lane.limit, else: limits[name] || lane.limit
      %{lane | limit: limit, remaining: remaining, capacity: capacity, full_in_ms: Verdict.milliseconds(full_in)}
    end)
  end

  @doc """
  A page of the agents that hold a record, each as `agent/2` shows it; needs `observe: true` and a `roster:`.

    * `prefix:`, `contains:` - only agents whose id begins with this, or has this in it;
    * `sort:` - `:id` (the default), `:usage` (agents whose dominant lane is nearest to its limit first) or
      `:violations`;
    * `page:`, `per_page:` - 0 is the first page; 100 agents a page by default. A page has at most 200: more gives 200.

  `matched` is their number on all pages, `not_listed` the number of agents that hold a record and are not on the
  roster. It reads the whole roster.

      iex> Tollgate.start_link(name: Listed, observe: true, roster: 1_000)
      iex> for agent <- ["user:1", "user:2", "bot:1"], do: Tollgate.check(Listed, agent, {:ws, :light})
      iex> %{agents: [%{agent: "user:1"}, %{agent: "user:2"}], matched: 2, not_listed: 0} =
      ...>   Tollgate.Observe.agents(Listed, prefix: "user:")
  """
  @spec agents(Tollgate.instance(), keyword) :: %{
          agents: [AgentView.t()],
          matched: non_neg_integer,
          not_listed: non_neg_integer
        }
  def agents(instance, options \\ []) do
    {reference, _} = Instance.find(instance)
    defaults = [prefix: "", contains: "", sort: :id, page: 0, per_page: 100]

    unless Keyword.keyword?(options) and Keyword.keys(options) -- Keyword.keys(defaults) == [] do
      raise ArgumentError, "the options are #{inspect(Keyword.keys(defaults))}, got: #{inspect(options)}"
    end

    [prefix, contains, sort, page, per_page] = for {key, default} <- defaults, do: Keyword.get(options, key, default)
    {agents, matched, not_listed} = Native.agents(reference, prefix, contains, sort, page, per_page)
    %{agents: Enum.map(agents, &agent(instance, &1)), matched: matched, not_listed: not_listed}
  end

  @doc """
  How the engine of an instance with `redis:` gets on; `nil` if no engine runs.

  `state` is `:connected`, `:seeding` (the store is back, and hears what it missed) or `:lost`, for `since_ms`.
  `nodes` is by how many machines shares are divided, `nodes_seen` how many have shown themselves lately. `losses`
  counts how often the store was lost, by reason; `last_problem` is the last one in words, and `warnings` says what an
  operator should change. `lanes` has each shared lane: `bound` is what all machines together may admit in any window
  beyond the limit, `credit` and `advance` what this machine has not spent and has not paid, `answers` its answers by
  source. `asks_dropped` that grow mean that checks ask faster than the store answers. `decisions` says how what
  operators decide follows to all machines: `current`, if this one knows all of it, and how many wait, were refused
  here, and the like.

      iex> Tollgate.Observe.engine(Tollgate)
      nil
  """
  @spec engine(Tollgate.instance()) :: map | nil
  def engine(instance) do
    {reference, _} = Instance.find(instance)
    Native.engine(reference)
  end

  @doc """
  The agents with the most violations in the last hour, the worst first.

  An agent has at most `violations`, and at least that less `error`.

      iex> Tollgate.start_link(name: Offended, observe: true)
      iex> for _ <- 1..3, do: Tollgate.Conduct.record_violation(Offended, "agent-7")
      iex> Tollgate.Observe.top_offenders(Offended, 3)
      %{violations: 3, agents: [%{agent: "agent-7", violations: 3, error: 0}]}
  """
  @spec top_offenders(Tollgate.instance(), non_neg_integer) :: %{violations: non_neg_integer, agents: [map]}
  def top_offenders(instance, most) do
    {reference, _} = Instance.find(instance)
    {total, agents} = Native.top_offenders(reference, most)
    agents = for {agent, violations, error} <- agents, do: %{agent: agent, violations: violations, error: error}
    %{violations: total, agents: agents}
  end

  @doc """
  The report for an operator, as JSON: counts, worst offenders, busiest agents.

      iex> Tollgate.start_link(name: Reported, observe: true)
      iex> Tollgate.Observe.report(Reported) =~ ~s("agents")
      true
  """
  @spec report(Tollgate.instance()) :: String.t()
  def report(instance) do
    {reference, _} = Instance.find(instance)
    Native.report(reference)
  end

  @doc """
  Replaces a file by the `report/1`, in one step: a reader finds the old one or the new one. Call it from a timer.
  """
  @spec write_report(Tollgate.instance(), Path.t()) :: :ok | {:error, File.posix()}
  def write_report(instance, path) do
    temporary = "#{path}.#{System.unique_integer([:positive])}.new"

    with :ok <- File.write(temporary, report(instance), [:sync]),
         {:error, _} = error <- File.rename(temporary, path) do
      File.rm(temporary)
      error
    end
  end

  @doc """
  An agent's id in a form that is safe to show: in a log (`:text`), in `:html`, as the `:label` of a metric, in a `:url`
  or in `:json`. An id is any bytes, and a client may have chosen it for what it does there.

      iex> alias Tollgate.Observe
      iex> {Observe.shown("<b>\\n", :html), Observe.shown("a b/c", :url), Observe.shown(<<255>>, :json)}
      {"&lt;b&gt;\\\\n", "a%20b%2Fc", ~s({"base64": "/w=="})}
  """
  @spec shown(Tollgate.agent(), :text | :html | :label | :url | :json) :: String.t()
  def shown(agent, where \\ :text), do: Native.shown(agent, where)
end
