defmodule Tollgate.Build do
  @moduledoc """
  Builds the native parts of the package, with cargo and the C compiler.

  It is loaded by mix.exs, since a task under `lib/` would not be compiled yet when the compilers run.
  """

  alias Tollgate.Precompiled

  @here Path.expand("..", __DIR__)
  # The published package has the sources in Rust with it; here they are the repository's.
  @packaged Path.join(@here, "rust")
  @repository Path.expand("../..", @here)

  @doc """
  The package's NIF: one that was compiled before, if the package has its checksum; otherwise, or with
  `TOLLGATE_BUILD=1`, compiled here, as the C shim over the limiter's C ABI.

  With the engine for limits that machines share, unless `config :tollgate, redis: false` leaves it out: the NIF is then
  smaller, and the limiter alone is quicker to build, with an older Rust.
  """
  def nif do
    redis = Application.get_env(:tollgate, :redis, true)
    unless is_boolean(redis), do: Mix.raise("config :tollgate, redis: has to be true or false, got: #{inspect(redis)}")

    case if(redis, do: Precompiled.fetch(), else: :none) do
      {:ok, bytes} -> install("tollgate_nif.so", bytes)
      :none -> compile(redis)
    end
  end

  defp compile(true), do: shim("tollgate_nif.so", cargo("tollgate-redis-capi", ~w(--profile capi), []), redis_flags())
  defp compile(false), do: shim("tollgate_nif.so", cargo("tollgate", ~w(--profile capi), []), ~w(-O2))

  defp redis_flags, do: ~w(-O2 -DTOLLGATE_REDIS)

  @doc "Compiles the NIF for this machine, and returns the path of the library."
  def compiled do
    compile(true)
    priv("tollgate_nif.so")
  end

  @doc "The same NIF with a way to make the limiter panic, for the tests."
  def nif_that_panics do
    archive = cargo("tollgate", [], ~w(--cfg tollgate_test_hooks))
    shim("tollgate_nif_that_panics.so", archive, ~w(-O1 -DTOLLGATE_TEST_HOOKS))
  end

  @doc "The same NIF as another build of it might be: what it keeps for an instance lies elsewhere. For the tests."
  def nif_of_another_layout do
    shim("tollgate_nif_of_another_layout.so", cargo("tollgate", [], ~w(--cfg tollgate_test_hooks)), [
      "-O1",
      "-DTOLLGATE_TEST_LAYOUT=4096"
    ])
  end

  @doc "The example of a NIF made with Rustler."
  def rustler do
    manifest = Path.join(@here, "native/Cargo.toml")

    built =
      artifact(~w(build --release --locked --manifest-path) ++ [manifest], ~r{"([^"]*tollgate_nif\.(?:so|dylib))"})

    install("tollgate_rustler.so", File.read!(built))
  end

  @doc "The folder for what was built."
  def priv(name), do: Path.join([Mix.Project.app_path(), "priv", name])

  @doc "Where the sources in Rust and the C headers are."
  def root, do: if(File.exists?(Path.join(@packaged, "Cargo.toml")), do: @packaged, else: @repository)

  @doc "The folder for cargo: one for all environments, so that nothing is compiled twice."
  # Apart from the other targets, which are built with other flags.
  def target_directory do
    Path.join(System.get_env("CARGO_TARGET_DIR") || Path.join(root(), "target"), "elixir") |> Path.expand(root())
  end

  @doc """
  Puts a library into the folder for what was built.

  A library that is overwritten while a VM has it loaded takes that VM down, so the new one takes the place of the old
  by a rename. Beside it stands the id of the build, by which the VM sees that the one it has loaded is another.
  """
  def install(name, bytes) do
    path = priv(name)

    if File.read(path) != {:ok, bytes} do
      File.mkdir_p!(Path.dirname(path))
      temporary = path <> ".written"
      File.write!(temporary, bytes)
      File.rename!(temporary, path)
    end

    case Regex.run(~r/tollgate build ([0-9a-f]{32})/, bytes, capture: :all_but_first) do
      [id] -> File.write!(path <> ".build", id)
      nil -> File.rm(path <> ".build")
    end

    :ok
  end

  # The features that the package offers: policies from TOML, budgets kept in a file, instances shared by several nodes.
  # The crate with the engine has them anyway.
  defp cargo(package, profile, flags) do
    features = if package == "tollgate", do: ~w(--features capi,config,persist,shared), else: []
    manifest = ["--manifest-path", Path.join(root(), "Cargo.toml")]
    arguments = ~w(rustc --lib --crate-type staticlib --package) ++ [package | features] ++ manifest ++ profile
    artifact(arguments, ~r{"([^"]*libtollgate(?:_redis_capi)?\.a)"}, flags)
  end

  # What a library in Rust has to be linked with depends on the system: Rust knows it.
  defp system_libraries do
    list = Path.join(target_directory(), "system-libraries")
    source = list <> ".rs"
    File.write!(source, "")
    target = if target = System.get_env("CARGO_BUILD_TARGET"), do: ["--target", target], else: []
    print = ["--crate-type", "staticlib", "--print", "native-static-libs=" <> list, "-o", list <> ".a", source]
    run(System.get_env("RUSTC") || "rustc", print ++ target, stderr_to_stdout: true)
    list |> File.read!() |> String.split()
  end

  # Cargo itself says where its output is: that depends on the environment.
  defp artifact(arguments, pattern, flags \\ []) do
    options = ["--message-format", "json-render-diagnostics", "--target-dir", target_directory()]
    # Flags of the environment are meant for other builds, and would compile everything anew.
    environment = [{"RUSTFLAGS", nil}, {"CARGO_ENCODED_RUSTFLAGS", nil}]
    flags = if flags == [], do: [], else: ["--" | flags]
    output = run("cargo", arguments ++ options ++ flags, cd: root(), env: environment)

    case Regex.scan(pattern, output, capture: :all_but_first) |> List.flatten() |> List.last() do
      nil -> Mix.raise("cargo did not say where it has put the file that #{inspect(pattern)} matches")
      path -> path
    end
  end

  defp shim(name, archive, flags) do
    sources = Path.wildcard(Path.join(@here, "c_src/*.c"))
    headers = Enum.flat_map(["#{@here}/c_src/*.h", "#{@here}/mix/build.exs", "#{root()}/include/*.h"], &Path.wildcard/1)
    made = priv(name)
    compiler = System.get_env("CC") || "cc"
    flags = flags ++ String.split(System.get_env("CFLAGS") || "")
    # Two archives may take each other's place, so the newer one is not always the other one.
    built_from = made <> ".from"
    from = inspect({archive, compiler, flags})

    if File.read(built_from) != {:ok, from} or Mix.Utils.stale?([archive | sources ++ headers], [made]) do
      temporary = made <> ".new"
      File.mkdir_p!(Path.dirname(made))
      id = build_id([archive | sources ++ headers], from)

      compile =
        ~w(-std=c11 -D_POSIX_C_SOURCE=200809L -fPIC -fvisibility=hidden -shared -Wall -Wextra) ++
          ["-DTOLLGATE_BUILD=\"#{id}\"" | flags] ++
          ["-I", erts_include(), "-I", Path.join(root(), "include"), "-o", temporary | sources] ++
          [archive | link_flags(:os.type())] ++ system_libraries()

      run(compiler, compile, [])
      install(name, File.read!(temporary))
      File.rm!(temporary)
      File.write!(built_from, from)
      File.touch!(made)
    end

    :ok
  end

  # Two builds with the same id keep the same bytes for an instance: all that was compiled is the same.
  defp build_id(files, from) do
    hash = Enum.reduce(files, :crypto.hash_init(:sha256), &:crypto.hash_update(&2, File.read!(&1)))
    hash |> :crypto.hash_update(from) |> :crypto.hash_final() |> binary_part(0, 16) |> Base.encode16(case: :lower)
  end

  # Never unloaded: a thread of ours may still be giving memory back after the module was purged. Nothing of the limiter
  # is exported to other libraries.
  defp link_flags({:unix, :darwin}), do: ~w(-undefined dynamic_lookup -Wl,-dead_strip)
  defp link_flags(_), do: ~w(-Wl,-z,nodelete -Wl,--gc-sections -Wl,--exclude-libs,ALL -s)

  defp erts_include do
    Path.join([:code.root_dir(), "erts-#{:erlang.system_info(:version)}", "include"])
  end

  defp run(program, arguments, options) do
    path = System.find_executable(program) || Mix.raise("#{program} is needed to build the NIF and is not in PATH")

    case System.cmd(path, arguments, options) do
      {output, 0} -> output
      {_output, status} -> Mix.raise("#{program} failed with status #{status}; its output is above")
    end
  end
end
