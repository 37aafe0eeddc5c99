// Modules for GPUs that are missing, or are none.
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
  refused(with({}) + "hearth train demo device=emulated",
          {"the module for emulated GPUs", "no libhearth_emu.so"});
  refused(with({}) + "hearth train demo device=gpu", {"emulated GPUs alone", "tools/build --gpu hip"});
}

TEST_F(Modules, ThatCannotBeOpenedAreSaidWhy) {
  const std::string env = works(with({"libhearth_cuda.so"}) + "hearth env");
  EXPECT_THAT(env, HasSubstr("GPUs: CUDA, not opened: modules/libhearth_cuda.so: "));
  refused(with({"libhearth_cuda.so"}) + "hearth train demo device=gpu",
          {"expected a GPU for device=gpu, got none: ", "libhearth_cuda.so", "hearth env"});
}

}  // namespace
}  // namespace hearth
