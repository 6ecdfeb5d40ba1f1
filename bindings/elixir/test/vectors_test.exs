defmodule Tollgate.VectorsTest do
  # What the limiter answers, as data that every language runs: tests/vectors
  # of the repository, whose README.md says what the files mean.
  use ExUnit.Case, async: true

  alias Tollgate.{Native, Policy, TestJSON}

  @folder Path.expand("../../../tests/vectors", __DIR__)
  @files Path.wildcard(Path.join(@folder, "*.json"))
  if length(@files) < 23, do: raise("the vectors are missing in #{@folder}")

  for file <- @files do
    test Path.basename(file) do
      %{"about" => _, "cases" => [_ | _] = cases} = TestJSON.decode!(File.read!(unquote(file)))

      for %{"name" => name, "policy" => policy, "steps" => steps} = fields <- cases do
        assert Map.keys(fields) == ["name", "policy", "steps"]
        limiter = new(policy)

        for {step, at} <- Enum.with_index(steps, 1) do
          run(limiter, step, "#{Path.basename(unquote(file))}, #{inspect(name)}, step #{at}")
        end
      end
    end
  end

  defp new(policy) do
    options = %{
      agents: 100,
      on_full: :deny,
      id_hash: :multilinear,
      clock: :manual,
      whole_seconds: false,
      observe: false,
      roster: 0,
      reservations: 16,
      reservations_per_agent: 0,
      prefault: false,
      shared: nil,
      shared_mode: 0,
      redis: nil
    }

    limiter = Native.new(policy(policy), options)
    :ok = Native.name_lanes(limiter, for({name, _} <- Native.lanes(limiter), do: Policy.pair(name)))
    limiter
  end

  defp policy(%{"preset" => name} = fields) when map_size(fields) == 1, do: Policy.source(String.to_atom(name))
  defp policy(%{"toml" => text} = fields) when map_size(fields) == 1, do: Policy.source({:toml, text})

  defp policy(fields) do
    Policy.source(
      Enum.map(fields, fn
        {"lanes", lanes} -> {:lanes, Enum.map(lanes, &List.to_tuple/1)}
        {"plans", plans} -> {:plans, for(plan <- plans, do: {plan["name"], Enum.map(plan["limits"], &List.to_tuple/1)})}
        {"actions", actions} -> {:actions, for(tier <- actions, do: {tier["channel"], tier["tier"], tier["names"]})}
        {"outside_total", lanes} -> {:outside_total, lanes}
        {"unknown_actions_to", tier} -> {:unknown_actions_to, tier}
        {"warn_below_percent", percent} -> {:warn_below_percent, percent}
        {"on_change", on_change} -> {:on_change, String.to_atom(on_change)}
        {"conduct", rules} -> {:conduct, for({key, value} <- rules, do: {String.to_atom(key), value})}
      end)
    )
  end

  defp run(limiter, step, where) do
    {controls, call} = Map.split(step, ["at_ms", "at_ns", "times", "every_ms", "expect"])
    if at = controls["at_ms"], do: Native.set_clock(limiter, at * 1_000_000)
    if at = controls["at_ns"], do: Native.set_clock(limiter, at)
    times = Map.get(controls, "times", 1)

    answers =
      for round <- 1..times do
        if round > 1, do: Native.advance_clock(limiter, Map.get(controls, "every_ms", 0) * 1_000_000)
        answer = answer(limiter, call)
        if round < times, do: refute(match?({:error, _}, answer), "#{where}: #{inspect(answer)}")
        answer
      end

    decisions = for %{"decision" => decision} <- answers, do: decision
    expect(List.last(answers), Enum.frequencies(decisions), controls["expect"], where)
  end

  defp expect(answer, _counts, nil, where), do: refute(match?({:error, _}, answer), "#{where}: #{inspect(answer)}")

  defp expect(answer, _counts, %{"error" => error} = expected, where) do
    assert map_size(expected) == 1
    assert answer == {:error, error}, "#{where}: expected the error #{error}, got #{inspect(answer)}"
  end

  defp expect(answer, counts, expected, where) do
    assert is_map(answer), "#{where}: #{inspect(answer)}"
    answer = Map.put(answer, "counts", counts)

    is_step = fn field -> field == "step_ns" and Map.has_key?(answer, "lane_wait_ns") end

    for {field, value} <- expected, not is_step.(field) do
      assert Map.has_key?(answer, field), "#{where}: the answer has no #{field}"
      assert answer[field] == value, "#{where}: expected #{field} #{inspect(value)}, got #{inspect(answer)}"
    end
  end

  # The answer as the vectors write it, or the name of the error.
  defp answer(limiter, step) do
    {op, arguments} = Map.pop!(step, "op")
    call(op, limiter, Map.new(arguments, fn {key, value} -> {String.to_atom(key), value} end))
  rescue
    error in ArgumentError -> {:error, error_name(step["op"], error.message)}
  end

  defp call("check", l, %{counted: true} = a), do: counted(Native.verdict(l, id(a), lane(a), options(a)))
  defp call("check", l, a), do: verdict(Native.verdict(l, id(a), lane(a), options(a)))
  defp call("peek", l, a), do: state(Native.peek(l, id(a), lane(a), limit(a)))
  defp call("refund", l, a), do: state(Native.refund(l, id(a), lane(a), cost(a) ++ limit(a)))
  defp call("hold", l, a), do: short(Native.hold(l, id(a), lane(a), []))
  defp call("release", l, a), do: state(Native.release(l, id(a), lane(a), []))
  defp call("check_all", l, a), do: all(Native.check_all(l, Enum.map(a.parts, &part/1), options(a)))

  defp call("settle", l, a) do
    settlement(Native.settle(l, reservation(l, a), a.used, Map.to_list(Map.take(a, [:so_far]))))
  end

  defp call("extend", l, a), do: settlement(Native.extend(l, reservation(l, a), a.ttl_ms * 1_000_000, []))

  defp call("reserve", l, a) do
    case Native.reserve(l, id(a), lane(a), a.ttl_ms * 1_000_000, [cost: a.estimate] ++ limit(a)) do
      {%{} = verdict, reservation} ->
        if reservation, do: Process.put({l, a.reservation}, reservation)
        verdict(verdict)

      {:error, name} ->
        {:error, Atom.to_string(name)}
    end
  end

  defp call("reset", l, %{lane: _} = a), do: nothing(Native.reset(l, id(a), lane: lane(a)))
  defp call("reset", l, a), do: nothing(Native.reset(l, id(a), []))
  defp call("forget", l, a), do: %{"known" => Native.forget(l, id(a), [])}
  defp call("sweep", l, a), do: %{"swept" => Native.sweep(l, a.idle_for_ms * 1_000_000)}
  defp call("limit_of", l, a), do: %{"limit" => Native.limit_of(l, id(a), lane(a))}
  defp call("assign", l, a), do: nothing(Native.assign(l, id(a), a.plan))
  defp call("unassign", l, a), do: nothing(Native.assign(l, id(a), nil))
  defp call("set_override", l, a), do: nothing(Native.set_override(l, id(a), a.lane_or_tier, a.limit))
  defp call("remove_override", l, a), do: nothing(Native.set_override(l, id(a), a.lane_or_tier, nil))
  defp call("remove_overrides", l, a), do: nothing(Native.set_override(l, id(a), nil, nil))
  defp call("exempt", l, a), do: nothing(Native.set_exempt(l, id(a), true))
  defp call("unexempt", l, a), do: nothing(Native.set_exempt(l, id(a), false))
  defp call("is_exempt", l, a), do: %{"exempt" => Native.limit_of(l, id(a), 0) == nil}
  defp call("replace_policy", l, a), do: nothing(Native.replace_policy(l, policy(a.policy)))
  defp call("rate_limited", l, a), do: %{"rate_limited" => Native.conduct(l, id(a), []).rate_limited}
  defp call("reset_violations", l, a), do: %{"known" => Native.reset_violations(l, id(a))}

  defp call("assignable", l, a) do
    %{"agents" => Enum.map(Native.assignable(l, Enum.map(a.agents, &id/1), []), &json_id/1)}
  end

  defp call("assignment", l, a) do
    {plan, overrides, exempt} = Native.assignment(l, id(a))
    %{"plan" => plan, "overrides" => Enum.map(overrides, &Tuple.to_list/1), "exempt" => exempt}
  end

  defp call("assignments", l, _), do: %{"agents" => for({id, _} <- Native.assignments(l), do: json_id(id))}

  defp call("record_violation", l, a) do
    case Native.record_violation(l, id(a), []) do
      %{} = seen ->
        %{
          "wait_ns" => seen.wait_ns,
          "step_ns" => seen.step_ns,
          "in_a_row" => seen.in_a_row,
          "sustained_abuse" => seen.sustained_abuse
        }

      {:error, name} ->
        {:error, Atom.to_string(name)}
    end
  end

  defp call("violations", l, a) do
    seen = Native.conduct(l, id(a), [])

    %{
      "violations" => seen.in_window,
      "in_a_row" => seen.in_a_row,
      "window_start_ns" => seen.window_start_ns,
      "last_violation_ns" => seen.last_violation_ns,
      "wait_ns" => seen.wait_ns
    }
  end

  defp call("lane_for", l, a) do
    case Native.lane_for(l, a.channel, a.action) do
      nil ->
        %{"lane" => nil}

      {number, lane, known, first_seen} ->
        {name, _} = Enum.at(Native.lanes(l), number)
        assert Policy.pair(name) == lane
        %{"lane" => name, "known" => known, "first_seen" => first_seen}
    end
  end

  defp call("unknown_actions", l, _) do
    {total, names, not_listed} = Native.unknown_actions(l)
    %{"total" => total, "names" => Enum.map(names, &Tuple.to_list/1), "not_listed" => not_listed}
  end

  defp id(%{agent: agent}), do: id(agent)
  defp id(%{"base64" => text}), do: Base.decode64!(text)
  defp id(text) when is_binary(text), do: text

  defp json_id(id), do: if(String.valid?(id), do: id, else: %{"base64" => Base.encode64(id)})

  defp lane(%{lane: number}) when is_integer(number), do: number
  defp lane(%{lane: name}), do: Policy.pair(name)

  # What a request has beside its agent and its lane.
  defp options(fields), do: Map.to_list(Map.take(fields, [:cost, :plan, :counted, :limit]))

  # Read once, where a check passes the text.
  defp limit(%{limit: text}), do: [limit: Native.call_limit(text)]
  defp limit(_), do: []

  defp cost(%{cost: cost}), do: [cost: cost]
  defp cost(_), do: []

  defp part(%{"agent" => agent, "lane" => lane} = fields) do
    limit = for {"limit", text} <- fields, do: {:limit, text}
    {id(agent), Policy.pair(lane), [cost: Map.get(fields, "cost", 1)] ++ limit}
  end

  defp short({:error, name}), do: {:error, Atom.to_string(name)}
  defp short({:allow, :exempt}), do: %{"decision" => "exempt"}
  defp short(denied) when elem(denied, 0) == :deny, do: %{"decision" => "deny"}
  defp short({decision, remaining}), do: %{"decision" => Atom.to_string(decision), "remaining" => remaining}

  defp all({:error, name}), do: {:error, Atom.to_string(name)}

  defp all({decision, _wait_ms, retry_after, blocking, answers}) do
    fields = %{
      "decision" => Atom.to_string(decision),
      "decisions" => Enum.map(answers, &short(&1)["decision"]),
      "blocking" => blocking
    }

    if decision == :deny, do: Map.put(fields, "retry_after_ns", span(retry_after)), else: fields
  end

  defp settlement(:ok), do: %{}
  defp settlement({:error, name}), do: {:error, Atom.to_string(name)}
  defp settlement({unused, overspent, left}), do: %{"unused" => unused, "overspent" => overspent, "left" => left}

  # One that has no name is an id that somebody made up.
  defp reservation(l, a), do: Process.get({l, a.reservation}, 0xFFFF_FFFF_FFFF_FFFF)

  defp nothing(:ok), do: %{}
  defp nothing({:error, {reason, _message}}), do: {:error, Atom.to_string(reason)}

  defp verdict({:error, name}), do: {:error, Atom.to_string(name)}
  defp verdict(%{decision: :exempt}), do: %{"decision" => "exempt"}

  defp verdict(verdict) do
    fields = %{
      "decision" => Atom.to_string(verdict.decision),
      "remaining" => verdict.remaining,
      "capacity" => verdict.capacity,
      "full_in_ns" => verdict.full_in_ns
    }

    wait = verdict.retry_after_ns

    if verdict.decision == :deny,
      do: Map.merge(fields, %{"retry_after_ns" => span(wait), "whole_seconds_ms" => hub(wait)}),
      else: fields
  end

  # A verdict that is counted. The step of the curve by itself is not in it: `expect` passes over `step_ns` here.
  defp counted(%{decision: :deny} = denied) do
    Map.merge(verdict(denied), %{
      "lane_wait_ns" => span(denied.lane_wait_ns),
      "wait_ns" => denied.conduct_wait_ns,
      "in_a_row" => denied.in_a_row,
      "sustained_abuse" => denied.sustained_abuse
    })
  end

  defp counted(other), do: verdict(other)

  defp state({:error, name}), do: {:error, Atom.to_string(name)}
  defp state(:exempt), do: %{"exempt" => true}

  defp state({remaining, capacity, next_in, full_in}) do
    %{
      "exempt" => false,
      "remaining" => remaining,
      "capacity" => capacity,
      "next_in_ns" => span(next_in),
      "full_in_ns" => full_in
    }
  end

  defp span(:infinity), do: nil
  defp span(ns), do: ns

  # Worked out here, apart from the NIF's own.
  defp hub(:infinity), do: 60_000
  defp hub(ns), do: max(1, div(ns + 999_999_999, 1_000_000_000)) * 1_000

  # Mistakes of a caller are exceptions in Elixir, and their messages say which.
  defp error_name("replace_policy", _), do: "bad_policy"

  defp error_name(_, message) do
    cond do
      message =~ "this one has 0" -> "empty_id"
      message =~ "1 to 256 bytes" -> "id_too_long"
      message =~ "the policy has no such lane" -> "unknown_lane"
      message =~ "the policy has no lane" -> "unknown_lane"
      message =~ "no such plan" -> "unknown_plan"
      message =~ "has no plan" -> "unknown_plan"
      message =~ "the cost has to be" -> "zero_cost"
      message =~ "all or none takes" -> "parts"
      message =~ "of a kind" -> "wrong_kind"
      message =~ "the limit of a call: " -> "bad_limit"
      true -> message
    end
  end
end
