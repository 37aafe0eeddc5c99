// Modules for GPUs that are missing, or are none.
#include <algorithm>
#include <chrono>

#include "program.h"

namespace hearth {
namespace {

using testing::HasSubstr;

class Modules : public Program {
 protected:
  /// A command that looks for modules in a folder of its own, with these files there.
  std::string with(std::initializer_list<const char*> modules) const {
    fs::create_directories(at("modules"));
    for (const char* module : modules) put(fmt::format("modules/{}", module), "no library");
    return "export HEARTH_MODULES=modules && ";
  }
};

TEST_F(Modules, ThatAreMissingAreSaidToBe) {
  refused(
      with({}) + "hearth train demo device=emulated",
      {"the module for emulated GPUs", "no libhearth_emu.so in modules, the folder set by HEARTH_MODULES"});
  refused(with({}) + "hearth train demo device=gpu", {"needs a module for GPUs", "tools/build --gpu hip"});
}

TEST_F(Modules, ThatCannotBeOpenedAreSaidWhy) {
  const std::string env = works(with({"libhearth_cuda.so"}) + "hearth doctor");
  EXPECT_THAT(env, HasSubstr("modules    CUDA, not opened: modules/libhearth_cuda.so: "));
  refused(with({"libhearth_cuda.so"}) + "hearth train demo device=gpu",
          {"no GPU found for device=gpu: ", "libhearth_cuda.so", "hearth doctor"});
}

TEST_F(Modules, ThatAreBuiltAnewAreTriedAnew) {
  fs::create_directories(at("modules"));
  fs::copy_file(fs::path(kProgram).parent_path() / "libhearth_emu.so", at("modules/libhearth_emu.so"));
  const auto num_verdicts = [&](const char* run) {
    works(
        "export HEARTH_MODULES=modules XDG_CACHE_HOME=$PWD/cache && hearth train tiny.yaml device=emulated "
        "self_test=always train.steps=1 --out " +
        std::string(run));
    return std::ranges::count_if(fs::directory_iterator(at("cache/hearth")), [](const auto& entry) {
      return entry.path().filename().string().starts_with("kernels-");
    });
  };
  EXPECT_EQ(num_verdicts("one"), 1);
  EXPECT_EQ(num_verdicts("two"), 1);
  fs::last_write_time(at("modules/libhearth_emu.so"),
                      fs::file_time_type::clock::now() + std::chrono::seconds(9));
  EXPECT_EQ(num_verdicts("three"), 2);
}

}  // namespace
}  // namespace hearth
