defmodule Tollgate.UpgradeTest do
  # Another build of the NIF meets a node that runs one. Each in a VM of its own: what is wrong here takes a VM down.
  use ExUnit.Case, async: true

  alias Tollgate.{Child, Precompiled}

  @moduletag :tmp_dir
  @moduletag timeout: 300_000

  # The code server logs why it refused a module, in its own time: `refused/0` waits for it.
  @seen """
  defmodule Seen do
    def log(%{msg: message}, %{config: %{to: process}}) do
      send(process, {:logged, inspect(message, printable_limit: :infinity, limit: :infinity)})
    end

    def refused do
      receive do
        {:logged, text} -> if text =~ "on_load", do: IO.puts(text), else: refused()
      after
        60_000 -> raise "nothing was logged"
      end
    end
  end

  :ok = :logger.add_handler(:seen, Seen, %{config: %{to: self()}})
  """

  defp lives(code) do
    {output, status} = Child.run([@seen | List.wrap(code)] ++ ["IO.puts(\"it lives\")"])
    assert {status, output =~ "it lives"} == {0, true}, output
    output
  end

  # A folder with the package's library under a name of its own, for a VM that is to load it from there.
  defp library(folder, from, to \\ "nif") do
    for ending <- [".so", ".so.build"] do
      File.cp!(Path.join(:code.priv_dir(:tollgate), from <> ending), Path.join(folder, to <> ending <> ".new"))
      File.rename!(Path.join(folder, to <> ending <> ".new"), Path.join(folder, to <> ending))
    end

    Path.join(folder, to)
  end

  defp started_with(nif) do
    """
    Application.load(:tollgate)
    Application.put_env(:tollgate, :nif, #{inspect(nif)})
    """
  end

  test "a build with another layout from another path is refused, and the old code serves on" do
    output =
      lives("""
      {:ok, _} = Application.ensure_all_started(:tollgate)
      for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      Application.put_env(:tollgate, :nif, "tollgate_nif_of_another_layout")

      for _ <- 1..8 do
        {:error, :on_load_failure} = :code.load_file(Tollgate.Native)
        {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
        {:allow, _} = Tollgate.check(Tollgate, "agent-8", {:http, :light})
        %{remaining: 0} = Tollgate.peek(Tollgate, "agent-7", {:ws, :heavy})
        :ok = Tollgate.Control.set_override(Tollgate, "agent-9", :heavy, "100/minute")
        :code.purge(Tollgate.Native)
      end

      Seen.refused()
      :persistent_term.erase(Tollgate)
      for process <- Process.list(), do: :erlang.garbage_collect(process)
      """)

    assert output =~ "tollgate_nif_of_another_layout.so is of another build"
    assert output =~ "restart the node"
  end

  test "and so it is the other way round" do
    lives([
      started_with("tollgate_nif_of_another_layout"),
      """
      {:ok, _} = Application.ensure_all_started(:tollgate)
      for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      Application.put_env(:tollgate, :nif, "tollgate_nif")
      {:error, :on_load_failure} = :code.load_file(Tollgate.Native)
      {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
      """
    ])
  end

  test "a copy of the same build from another path takes over", %{tmp_dir: folder} do
    copy = library(folder, "tollgate_nif")

    lives("""
    {:ok, _} = Application.ensure_all_started(:tollgate)
    for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    Application.put_env(:tollgate, :nif, #{inspect(copy)})
    {:module, Tollgate.Native} = :code.load_file(Tollgate.Native)
    {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    :code.purge(Tollgate.Native)
    {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
    :persistent_term.erase(Tollgate)
    for process <- Process.list(), do: :erlang.garbage_collect(process)
    """)
  end

  test "a library that was replaced at its path is not taken for the new one", %{tmp_dir: folder} do
    path = library(folder, "tollgate_nif")
    library(folder, "tollgate_nif_of_another_layout", "other")

    output =
      lives([
        started_with(path),
        """
        {:ok, _} = Application.ensure_all_started(:tollgate)
        for _ <- 1..10, do: Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
        other = #{inspect(Path.join(folder, "other"))}
        for ending <- [".so", ".so.build"], do: File.rename!(other <> ending, #{inspect(path)} <> ending)
        {:error, :on_load_failure} = :code.load_file(Tollgate.Native)
        {:deny, _} = Tollgate.check(Tollgate, "agent-7", {:ws, :heavy})
        Seen.refused()
        """
      ])

    assert output =~ "was replaced since it was loaded"
  end

  test "without a library each call and the start say where it should be, and what to do" do
    output =
      lives([
        started_with("nothing"),
        """
        {:error, {:tollgate, {message, _}}} = Application.ensure_all_started(:tollgate)
        IO.puts(message)
        try do
          Tollgate.Native.now(make_ref())
        rescue
          error in Tollgate.Error -> {:nif, true} = {error.reason, error.message =~ "nothing.so"}
        end
        """
      ])

    assert output =~ "priv/nothing.so cannot be loaded" and output =~ "TOLLGATE_BUILD=1"
  end

  describe "a library that was compiled before" do
    setup %{tmp_dir: folder} do
      bytes = File.read!(Path.join(:code.priv_dir(:tollgate), "tollgate_nif.so"))
      File.write!(Path.join(folder, Precompiled.name()), bytes)
      %{bytes: bytes, sum: :crypto.hash(:sha256, bytes) |> Base.encode16(case: :lower)}
    end

    test "is taken from a directory if its checksum agrees", %{tmp_dir: folder, bytes: bytes, sum: sum} do
      assert Precompiled.fetch(folder, %{Precompiled.name() => sum}) == {:ok, bytes}
      assert Precompiled.fetch(folder, %{"tollgate_nif-of-another-machine.so" => sum}) == :none
      assert Precompiled.fetch(nil, %{Precompiled.name() => sum}) == :none
    end

    test "is refused if it is another one, or missing", %{tmp_dir: folder} do
      other = String.duplicate("0", 64)

      assert_raise Mix.Error, ~r/is not the one that was released.*TOLLGATE_BUILD=1/s, fn ->
        Precompiled.fetch(folder, %{Precompiled.name() => other})
      end

      File.rm!(Path.join(folder, Precompiled.name()))

      assert_raise Mix.Error, ~r/cannot be fetched: no such file.*TOLLGATE_BUILD=1/s, fn ->
        Precompiled.fetch(folder, %{Precompiled.name() => other})
      end
    end

    test "is listed with its checksum by who makes a release", %{tmp_dir: folder, bytes: bytes, sum: sum} do
      Precompiled.add(folder, "tollgate_nif-of-another-machine.so", "other")
      Precompiled.add(folder, Precompiled.name(), bytes)
      {listed, _} = Code.eval_file(Path.join(folder, "checksums.exs"))
      assert %{from: nil, sha256: %{"tollgate_nif-of-another-machine.so" => _} = sums} = listed
      assert sums[Precompiled.name()] == sum
      assert Precompiled.fetch(folder, sums) == {:ok, bytes}
    end
  end
end
