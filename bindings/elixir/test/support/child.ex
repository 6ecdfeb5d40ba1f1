defmodule Tollgate.Child do
  @moduledoc "Runs code in a VM of its own: what might take a VM down is tried there."

  @doc "Runs it to its end, piece by piece if it is a list, and gives what it printed and its exit status."
  def run(code), do: System.cmd(elixir(), arguments(code), stderr_to_stdout: true, env: [{"LANG", "C.UTF-8"}])

  @doc "Starts it, and waits until it prints a line. Gives the port and the id of the process."
  def start(code) do
    port =
      Port.open({:spawn_executable, elixir()}, [
        :binary,
        :exit_status,
        :stderr_to_stdout,
        {:line, 1_000},
        {:args, arguments(code)},
        {:env, [{~c"LANG", ~c"C.UTF-8"}]}
      ])

    {:os_pid, pid} = Port.info(port, :os_pid)

    receive do
      {^port, {:data, {_, line}}} -> {port, pid, line}
      {^port, {:exit_status, status}} -> raise "the child ended with status #{status}"
    end
  end

  @doc "Ends it at once, as the kernel does it."
  def kill({port, pid, _line}) do
    {_, 0} = System.cmd("kill", ["-KILL", Integer.to_string(pid)])

    receive do
      {^port, {:exit_status, status}} -> status
    end
  end

  defp elixir, do: System.find_executable("elixir")

  defp arguments(code) do
    ["-pa", Path.join(:code.lib_dir(:tollgate), "ebin") | Enum.flat_map(List.wrap(code), &["-e", &1])]
  end
end
