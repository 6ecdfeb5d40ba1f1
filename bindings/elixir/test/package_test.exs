defmodule Tollgate.PackageTest do
  # What would be published. `mix hex.build` needs the registry's tool, so the list of files is tested instead: all that
  # the last build has read has to be in it.
  use ExUnit.Case, async: true

  @moduletag :tmp_dir
  @here Path.expand("..", __DIR__)
  @repository Path.expand("../..", @here)

  setup %{tmp_dir: folder} do
    %{files: Tollgate.Package.assemble(Path.join(folder, "package")), package: Path.join(folder, "package")}
  end

  test "it has every file that cargo has read to build the NIF", %{files: files} do
    [list | _] = Path.wildcard(Path.join(Tollgate.Build.target_directory(), "capi/libtollgate_redis_capi.d"))
    [_, read] = list |> File.read!() |> String.split(": ", parts: 2)
    read = read |> String.split() |> Enum.map(&Path.relative_to(&1, @repository))
    assert length(read) > 150
    assert for(file <- read, Path.join("rust", file) not in files, do: file) == []
  end

  test "it has what the C compiler and Mix read, and nothing that is only for tests", %{files: files} do
    own =
      for folder <- ["lib", "c_src", "mix"],
          file <- Path.wildcard("#{@here}/#{folder}/**/*.*"),
          do: Path.relative_to(file, @here)

    wanted =
      own ++
        ~w(mix.exs .formatter.exs README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE checksums.exs) ++
        ~w(rust/Cargo.toml rust/Cargo.lock rust/include/tollgate.h rust/include/tollgate_redis.h rust/presets/hub.toml)

    assert wanted -- files == []
    assert Enum.filter(files, &(&1 =~ ~r{^(test|bench|_build|tmp|priv)/|/target/|\.so$})) == []
    # Whatever is in the folder is named by the package, which is what the registry's tool reads.
    named = Tollgate.Package.metadata()[:files]

    assert Enum.reject(files, fn file -> Enum.any?(named, &(file == &1 or String.starts_with?(file, &1 <> "/"))) end) ==
             []
  end

  test "its metadata is what the registry asks for" do
    project = Tollgate.MixProject.project()
    assert project[:description] != nil and byte_size(project[:description]) < 300
    assert project[:package][:licenses] == ["MIT", "Apache-2.0"]
    assert is_map(project[:package][:links])
    assert Version.parse!(project[:version])
    # The sources in Rust are of the same version.
    assert File.read!(Path.join(@repository, "Cargo.toml")) =~ ~s(\nversion = "#{project[:version]}"\n)
  end

  test "its crates are a workspace of their own, as cargo sees it", %{package: package} do
    {metadata, 0} =
      System.cmd("cargo", ~w(metadata --format-version 1 --no-deps --offline --manifest-path rust/Cargo.toml),
        cd: package
      )

    for crate <- ~w(tollgate tollgate-redis tollgate-redis-capi), do: assert(metadata =~ ~s("name":"#{crate}"))
    refute metadata =~ ~s("name":"tollgate-server")
  end

  @tag :long
  @tag timeout: :infinity
  test "it compiles by itself", %{package: package} do
    target = Path.join(Tollgate.Build.target_directory(), "package")
    env = [{"CARGO_TARGET_DIR", target}, {"TOLLGATE_NO_DEPS", "1"}, {"MIX_ENV", "prod"}, {"MIX_TARGET", nil}]
    {output, status} = System.cmd("mix", ["compile"], cd: package, env: env, stderr_to_stdout: true)
    assert status == 0, output

    {output, 0} =
      System.cmd("mix", ["run", "-e", "IO.inspect(Tollgate.check(Tollgate, \"a\", {:ws, :normal}))"],
        cd: package,
        env: env
      )

    assert output =~ "{:allow, 59}"
  end
end
