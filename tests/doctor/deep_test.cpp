// The deep tests of a GPU, on emulated ones: good, with a kernel that computes wrong numbers, and with one
// that takes its process with it.
#include "doctor/deep.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <csignal>

#include "doctor/report.h"
#include "planted_kernel.h"

namespace hearth::doctor {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

DeepResult examine_emulated(std::vector<std::string>* said = nullptr) {
  const system::Machine machine;
  const DeepOptions options{
      .device = "emulated", .load_seconds = 0.05, .max_memory_bytes = 64 << 20, .max_kernels = 6};
  return examine_deep(machine, options, [&](const std::string& text) {
    if (said != nullptr) said->push_back(text);
  });
}

TEST(Deep, OfAGoodGpuHasItsFigures) {
  std::vector<std::string> said;
  const DeepResult found = examine_emulated(&said);
  EXPECT_THAT(found.findings, Each(Field(&Finding::level, Level::ok)));
  for (const char* id : {"kernels-right", "copy-rate", "gpu-rate", "gpu-memory", "steady-load"})
    EXPECT_THAT(found.findings, Contains(Field(&Finding::id, id)));
  EXPECT_THAT(found.findings,
              Contains(Field(&Finding::what, HasSubstr("64.0 MiB of free memory tested with 6 patterns"))));
  EXPECT_EQ(found.figures.size(), 5U);
  for (const Figure& figure : found.figures) EXPECT_GT(figure.value, 0) << figure.name;
  EXPECT_THAT(said, Contains(HasSubstr("testing every kernel")));
  const std::string page = to_page({}, nullptr, found.findings, found);
  EXPECT_THAT(page, AllOf(HasSubstr("copies to the GPU"), HasSubstr("steady-load"), HasSubstr("</html>"),
                          Not(HasSubstr("http")), Not(HasSubstr("<script"))));
}

ir::Kernel all_sevens(const ir::NodeView& view) {
  const int64_t num_bytes = view.out[0].num_bytes();
  return {.run = [num_bytes](const ir::KernelArgs& args) {
    args.stream->fill(static_cast<std::byte*>(args.out[0]), 7, num_bytes);
  }};
}

TEST(Deep, NamesAKernelThatComputesWrongNumbers) {
  const PlantedKernel planted("add", all_sevens);
  EXPECT_THAT(examine_emulated().findings,
              Contains(AllOf(Field(&Finding::level, Level::broken), Field(&Finding::id, "kernels-right"),
                             Field(&Finding::what, HasSubstr("add(")))));
}

ir::Kernel deadly(const ir::NodeView&) {
  return {.run = [](const ir::KernelArgs&) { raise(SIGKILL); }};
}

TEST(Deep, OutlivesAGpuThatTakesItsProcessWithIt) {
  const PlantedKernel planted("add", deadly);
  EXPECT_THAT(examine_emulated().findings,
              ElementsAre(AllOf(Field(&Finding::level, Level::broken), Field(&Finding::id, "gpu-failed"),
                                Field(&Finding::what, HasSubstr("during the test 'kernels'")))));
}

}  // namespace
}  // namespace hearth::doctor
