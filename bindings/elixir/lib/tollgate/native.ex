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
    # A name in the package's own folder, or a path.
    path = Path.expand(name, directory())

    with :ok <- :erlang.load_nif(String.to_charlist(path), 0), :ok <- same_build(path) do
      :persistent_term.erase({__MODULE__, :problem})
      :ok
    else
      {:error, problem} -> refuse(explain(problem, path))
    end
  end

  defp directory do
    case :code.priv_dir(:tollgate) do
      {:error, :bad_name} -> "priv of the application tollgate, which is not in the code path,"
      directory -> to_string(directory)
    end
  end

  # The system does not load a library twice from the same path, even if the file is another one by now.
  defp same_build(path) do
    case File.read(path <> ".so.build") do
      {:ok, id} -> if id == build(), do: :ok, else: {:error, :other_file}
      {:error, _} -> :ok
    end
  end

  # A module that is there already stays as it is, with its NIF, and serves on. Otherwise each function says what is
  # wrong: a module that is missing would not.
  defp refuse(message) do
    if :erlang.function_exported(__MODULE__, :check, 4) do
      {:error, String.to_charlist(message)}
    else
      :persistent_term.put({__MODULE__, :problem}, message)
      :ok
    end
  end

  defp explain({reason, _}, path) when reason in [:upgrade, :reload] do
    "the NIF #{path}.so is of another build than the one that is loaded, and cannot read its instances. The old " <>
      "code goes on serving them: restart the node to use the new one"
  end

  defp explain(:other_file, path) do
    "the file #{path}.so was replaced since it was loaded, and the system does not load it again. The old code goes " <>
      "on: restart the node to use the new one"
  end

  defp explain({_reason, text}, path) do
    "the NIF #{path}.so cannot be loaded: #{text}. If it is missing or was built for another machine or system, " <>
      "build it here: mix deps.compile --force tollgate, with TOLLGATE_BUILD=1 if it was not compiled here"
  end

  @doc false
  # What is wrong with the NIF, or nil.
  def problem, do: :persistent_term.get({__MODULE__, :problem}, nil)

  # What a function does while there is no NIF in its place.
  defp missing do
    :erlang.nif_error(%Tollgate.Error{reason: :nif, message: problem() || "the NIF of tollgate is not loaded"})
  end

  def new(_policy, _options), do: missing()
  def name_lanes(_reference, _pairs), do: missing()
  def lanes(_reference), do: missing()
  def call_limit(_text), do: missing()
  def plans(_reference), do: missing()
  def plan(_reference, _name), do: missing()
  def lane_for(_reference, _channel, _action), do: missing()
  def unknown_actions(_reference), do: missing()
  def sweep(_reference, _idle_for_ns), do: missing()
  def now(_reference), do: missing()
  def advance_clock(_reference, _by_ns), do: missing()
  def set_clock(_reference, _now_ns), do: missing()

  def nothing, do: missing()
  def build, do: missing()
  def check(_reference, _agent, _channel, _tier), do: missing()
  def ask(_reference, _agent, _lane, _options), do: missing()
  def decide(_reference, _agent, _channel, _action, _cost, _plan, _counted), do: missing()
  def verdict(_reference, _agent, _lane, _options), do: missing()
  def validate(_reference, _requests), do: missing()
  def check_many(_reference, _requests, _options), do: missing()
  def check_all(_reference, _requests, _options), do: missing()
  def peek(_reference, _agent, _lane, _options), do: missing()
  def refund(_reference, _agent, _lane, _options), do: missing()
  def hold(_reference, _agent, _lane, _options), do: missing()
  def release(_reference, _agent, _lane, _options), do: missing()
  def reserve(_reference, _agent, _lane, _ttl_ns, _options), do: missing()
  def settle(_reference, _reservation, _used, _options), do: missing()
  def extend(_reference, _reservation, _ttl_ns, _options), do: missing()
  def reset(_reference, _agent, _options), do: missing()
  def forget(_reference, _agent, _options), do: missing()

  def record_violation(_reference, _agent, _options), do: missing()
  def conduct(_reference, _agent, _options), do: missing()
  def reset_violations(_reference, _agent), do: missing()
  def assignable(_reference, _agents, _options), do: missing()

  def assign(_reference, _agent, _plan), do: missing()
  def set_override(_reference, _agent, _lane_or_tier, _limit), do: missing()
  def set_exempt(_reference, _agent, _exempt), do: missing()
  def limit_of(_reference, _agent, _lane), do: missing()
  def assignment(_reference, _agent), do: missing()
  def assignments(_reference), do: missing()
  def set_assignments(_reference, _assignments), do: missing()
  def replace_policy(_reference, _policy), do: missing()
  def policy(_reference), do: missing()
  def plan_limits(_reference, _name), do: missing()
  def keep_assignments_in(_reference, _path), do: missing()
  def reload_assignments(_reference), do: missing()
  def keep_budgets_in(_reference, _path), do: missing()
  def save_budgets(_reference), do: missing()

  def snapshot(_reference), do: missing()
  def agent(_reference, _agent, _options), do: missing()
  def agents(_reference, _prefix, _contains, _sort, _page, _per_page), do: missing()
  def top_offenders(_reference, _most), do: missing()
  def report(_reference), do: missing()
  def shown(_agent, _where), do: missing()
  def poll_events(_reference), do: missing()
  def log_denied(_reference, _agent, _now_ns), do: missing()
  def log_due(_reference, _now_ns), do: missing()

  def engine(_reference), do: missing()
  def stop_engine(_reference), do: missing()

  # Only in the library that the tests build: see test/crash_test.exs.
  def panic_next, do: missing()
end
