defmodule Tollgate.BudgetsTest do
  use Tollgate.Case, async: true

  import ExUnit.CaptureLog

  @moduletag :tmp_dir
  @policy [lanes: [{"llm/tokens", "budget 1_000/day"}, {"llm/calls", "10/minute"}]]

  defp left(name), do: Tollgate.peek(name, "user", {:llm, :tokens}).remaining

  test "what was used is used after a restart too", %{tmp_dir: folder} do
    path = Path.join(folder, "budgets.json")
    options = [policy: @policy, budgets: path, clock: :manual, telemetry: :off]
    name = start(options)
    assert {:allow, 600} = Tollgate.check(name, "user", {:llm, :tokens}, cost: 400)
    assert Tollgate.Control.save_budgets(name) == {:ok, %{saved: 1, unsaved: 0}}
    assert {:allow, 500} = Tollgate.check(name, "user", {:llm, :tokens}, cost: 100)
    # It saves when it is stopped, and the next one is found with all of it in force.
    stop_supervised!({Tollgate, name})
    start_supervised!({Tollgate, [name: name] ++ options})
    assert left(name) == 500
    # Its owner's crash loses nothing: the limiter lives on, with its file.
    Tollgate.check(name, "user", {:llm, :tokens}, cost: 100)
    owner = Process.whereis(name)
    Process.exit(owner, :kill)
    eventually(fn -> Process.whereis(name) not in [nil, owner] end)
    :sys.get_state(name)
    assert left(name) == 400
    assert {:ok, %{saved: 1}} = Tollgate.Control.save_budgets(name)
  end

  test "it is written periodically", %{tmp_dir: folder} do
    path = Path.join(folder, "budgets.json")
    name = start(policy: @policy, budgets: path, save_budgets_every_ms: 10)
    Tollgate.check(name, <<"user", 255>>, {:llm, :tokens}, cost: 400)
    eventually(fn -> match?({:ok, _}, File.read(path)) and File.read!(path) =~ "400" end)
  end

  test "a file that cannot be written is logged once", %{tmp_dir: folder} do
    path = Path.join(folder, "budgets.json")
    name = start(policy: @policy, budgets: path, save_budgets_every_ms: nil)
    {:ok, _} = Tollgate.Control.save_budgets(name)
    File.write!(path, "somebody else was here")
    Tollgate.check(name, "user", {:llm, :tokens}, cost: 400)

    output =
      capture_log(fn ->
        for _ <- 1..3, do: send(name, :save_budgets)
        :sys.get_state(name)
      end)

    assert length(Regex.scan(~r/used budgets are not saved/, output)) == 1
    assert {:error, %Tollgate.Error{reason: :budgets}} = Tollgate.Control.save_budgets(name)
    assert File.read!(path) == "somebody else was here"
  end

  test "an invalid file keeps the instance from starting", %{tmp_dir: folder} do
    path = Path.join(folder, "budgets.json")
    File.write!(path, "nonsense")
    Process.flag(:trap_exit, true)
    assert {:error, %ArgumentError{message: message}} = Tollgate.start_link(name: :no, policy: @policy, budgets: path)
    assert message =~ path
    assert_raise ArgumentError, ~r/budgets/, fn -> Tollgate.start_link(name: :no, budgets: :here) end
    assert {:error, %Tollgate.Error{reason: :budgets}} = Tollgate.Control.save_budgets(start(policy: @policy))
  end

  test "an invalid path is refused, and makes no file", %{tmp_dir: folder} do
    {reference, _} = Tollgate.Instance.find(start(policy: @policy))

    for path <- [nil, :here, 1, ["a"], <<1::3>>, String.duplicate("x", 2_000_000)] do
      assert_raise ArgumentError, fn -> Tollgate.Native.keep_budgets_in(reference, path) end
    end

    assert_raise ArgumentError, fn -> Tollgate.Native.keep_budgets_in(make_ref(), Path.join(folder, "a")) end

    for path <- ["", "a\0b", folder, Path.join(folder, "no/such"), Path.join(folder, String.duplicate("x", 300))] do
      assert {:error, message} = Tollgate.Native.keep_budgets_in(reference, path)
      assert String.valid?(message)
    end

    assert File.ls!(folder) == []
  end
end
