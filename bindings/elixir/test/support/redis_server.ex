defmodule Tollgate.RedisServer do
  @moduledoc "A real Redis or Valkey for a test: on a Unix socket and no port, and killed by its id at the end."

  @doc """
  The programs to test with. One that is missing is reported, and fails the test under `make test`.
  """
  def programs do
    target = System.get_env("CARGO_TARGET_DIR") || Path.expand("../../../../target", __DIR__)

    Enum.filter(["redis-server", Path.join(Path.expand(target), "valkey/bin/valkey-server")], fn program ->
      missing = System.find_executable(program) == nil
      if missing and System.get_env("TOLLGATE_ALL"), do: raise("#{program} is missing: run .ci/tools")
      if missing, do: IO.puts("not run: #{program} is missing")
      not missing
    end)
  end

  @doc "Starts one, and waits until it answers."
  def start(program) do
    folder = Path.join(System.tmp_dir!(), "tollgate-redis-#{System.pid()}-#{System.unique_integer([:positive])}")
    File.mkdir!(folder)
    socket = Path.join(folder, "socket")

    port =
      Port.open({:spawn_executable, System.find_executable(program)}, [
        :binary,
        :exit_status,
        {:cd, folder},
        {:args, ~w(--port 0 --unixsocket socket --appendonly no --save) ++ [""]}
      ])

    {:os_pid, pid} = Port.info(port, :os_pid)
    await(socket, 3_000)
    %{pid: pid, folder: folder, url: "redis+unix://#{socket}"}
  end

  defp await(socket, tries) do
    with {:ok, connection} <- :gen_tcp.connect({:local, socket}, 0, [:binary, active: false]),
         :ok <- :gen_tcp.send(connection, "PING\r\n"),
         {:ok, "+PONG\r\n"} <- :gen_tcp.recv(connection, 0, 1_000) do
      :gen_tcp.close(connection)
    else
      _ ->
        if tries == 0, do: raise("the server does not answer")
        Process.sleep(10)
        await(socket, tries - 1)
    end
  end

  @doc "Sends it a signal: STOP and CONT pause it."
  def signal(server, signal), do: {_, 0} = System.cmd("kill", ["-#{signal}", Integer.to_string(server.pid)])

  @doc "Ends it."
  def stop(server) do
    System.cmd("kill", ["-KILL", Integer.to_string(server.pid)], stderr_to_stdout: true)
    File.rm_rf!(server.folder)
  end
end
