defmodule Tollgate.Native do
  @moduledoc false
  # The functions of the NIF, c_src/nif.c, and nothing else. A `reference` is
  # an instance; a `lane` is `{channel, tier}`, its name or its number; `options`
  # are those of `Tollgate`; spans and instants are nanoseconds, or `:infinity`
  # where there is no end.

  @on_load :load

  # Public, since a module that is loaded over itself calls it again.
  @doc false
  def load do
    name = Application.get_env(:tollgate, :nif, "tollgate_nif")
    :erlang.load_nif(:filename.join(:code.priv_dir(:tollgate), String.to_charlist(name)), 0)
  end

  def new(_policy, _options), do: :erlang.nif_error(:not_loaded)
  def name_lanes(_reference, _pairs), do: :erlang.nif_error(:not_loaded)
  def lanes(_reference), do: :erlang.nif_error(:not_loaded)
  def plans(_reference), do: :erlang.nif_error(:not_loaded)
  def plan(_reference, _name), do: :erlang.nif_error(:not_loaded)
  def lane_for(_reference, _channel, _action), do: :erlang.nif_error(:not_loaded)
  def unknown_actions(_reference), do: :erlang.nif_error(:not_loaded)
  def sweep(_reference, _idle_for_ns), do: :erlang.nif_error(:not_loaded)
  def now(_reference), do: :erlang.nif_error(:not_loaded)
  def advance_clock(_reference, _by_ns), do: :erlang.nif_error(:not_loaded)
  def set_clock(_reference, _now_ns), do: :erlang.nif_error(:not_loaded)

  def nothing, do: :erlang.nif_error(:not_loaded)
  def check(_reference, _agent, _channel, _tier), do: :erlang.nif_error(:not_loaded)
  def ask(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def verdict(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def validate(_reference, _requests), do: :erlang.nif_error(:not_loaded)
  def check_many(_reference, _requests, _options), do: :erlang.nif_error(:not_loaded)
  def check_all(_reference, _requests, _options), do: :erlang.nif_error(:not_loaded)
  def peek(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def refund(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def hold(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def release(_reference, _agent, _lane, _options), do: :erlang.nif_error(:not_loaded)
  def reserve(_reference, _agent, _lane, _ttl_ns, _options), do: :erlang.nif_error(:not_loaded)
  def settle(_reference, _reservation, _used, _options), do: :erlang.nif_error(:not_loaded)
  def extend(_reference, _reservation, _ttl_ns, _options), do: :erlang.nif_error(:not_loaded)
  def reset(_reference, _agent, _options), do: :erlang.nif_error(:not_loaded)
  def forget(_reference, _agent, _options), do: :erlang.nif_error(:not_loaded)

  def record_violation(_reference, _agent, _options), do: :erlang.nif_error(:not_loaded)
  def conduct(_reference, _agent, _options), do: :erlang.nif_error(:not_loaded)
  def reset_violations(_reference, _agent), do: :erlang.nif_error(:not_loaded)
  def assignable(_reference, _agents, _options), do: :erlang.nif_error(:not_loaded)

  def assign(_reference, _agent, _plan), do: :erlang.nif_error(:not_loaded)
  def set_override(_reference, _agent, _lane_or_tier, _limit), do: :erlang.nif_error(:not_loaded)
  def set_exempt(_reference, _agent, _exempt), do: :erlang.nif_error(:not_loaded)
  def limit_of(_reference, _agent, _lane), do: :erlang.nif_error(:not_loaded)
  def assignment(_reference, _agent), do: :erlang.nif_error(:not_loaded)
  def assignments(_reference), do: :erlang.nif_error(:not_loaded)
  def set_assignments(_reference, _assignments), do: :erlang.nif_error(:not_loaded)
  def replace_policy(_reference, _policy), do: :erlang.nif_error(:not_loaded)
  def keep_budgets_in(_reference, _path), do: :erlang.nif_error(:not_loaded)
  def save_budgets(_reference), do: :erlang.nif_error(:not_loaded)

  def snapshot(_reference), do: :erlang.nif_error(:not_loaded)
  def agent(_reference, _agent, _options), do: :erlang.nif_error(:not_loaded)
  def agents(_reference, _prefix, _contains, _sort, _page, _per_page), do: :erlang.nif_error(:not_loaded)
  def top_offenders(_reference, _most), do: :erlang.nif_error(:not_loaded)
  def report(_reference), do: :erlang.nif_error(:not_loaded)
  def shown(_agent, _where), do: :erlang.nif_error(:not_loaded)
  def poll_events(_reference), do: :erlang.nif_error(:not_loaded)
  def log_denied(_reference, _agent, _now_ns), do: :erlang.nif_error(:not_loaded)
  def log_due(_reference, _now_ns), do: :erlang.nif_error(:not_loaded)

  def engine(_reference), do: :erlang.nif_error(:not_loaded)
  def stop_engine(_reference), do: :erlang.nif_error(:not_loaded)

  # Only in the library that the tests build: see test/crash_test.exs.
  def panic_next, do: :erlang.nif_error(:not_loaded)
end
