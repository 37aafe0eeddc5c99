// What is said of this program on a machine: its modules, kernels and libraries.
#include <gmock/gmock.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "doctor/report.h"

namespace hearth::doctor {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

const gpu::Runtime kHip{
    .name = "HIP", .version = "5.7", .architectures = "gfx1030 gfx1100", .library = "rocBLAS 3.1.0"};
const gpu::DeviceInfo kRadeon{.name = "RX 7900 XT", .architecture = "gfx1100", .pci_address = "0000:03:00.0"};

Machine machine_with_radeon() { return {.gpus = {{.pci_address = "0000:03:00.0", .device_id = "744c"}}}; }

Findings found(const Program& program) {
  Findings all;
  check_program(machine_with_radeon(), program, all);
  return all;
}
auto is(Level level, const std::string& id, const std::string& what, const std::string& fix) {
  return AllOf(Field(&Finding::level, level), Field(&Finding::id, id), Field(&Finding::what, HasSubstr(what)),
               Field(&Finding::fix, HasSubstr(fix)));
}

TEST(OwnProgram, ThatFitsNamesTheDevice) {
  EXPECT_THAT(found({.runtimes = {kHip}, .devices = {kRadeon}}),
              ElementsAre(is(Level::ok, "device", "device=gpu:0: RX 7900 XT, gfx1100", "")));
}

TEST(OwnProgram, WithoutAModuleSaysWhatBuildsIt) {
  EXPECT_THAT(found({}),
              ElementsAre(is(Level::broken, "module", "built without HIP", "tools/build --gpu hip")));
}

TEST(OwnProgram, WhoseRuntimeShowsNothingSaysWhy) {
  gpu::Runtime without = kHip;
  without.fault = "no ROCm-capable device is detected";
  EXPECT_THAT(found({.runtimes = {without}}),
              ElementsAre(is(Level::broken, "runtime", "HIP shows no GPU: no ROCm-capable", "rocminfo")));
}

TEST(OwnProgram, WithoutKernelsForTheGpuSaysWhatBuildsThem) {
  gpu::DeviceInfo desktop = kRadeon;
  desktop.architecture = "gfx1036";
  EXPECT_THAT(found({.runtimes = {kHip}, .devices = {desktop}}),
              ElementsAre(is(Level::broken, "kernels", "no kernels for gfx1036",
                             "HEARTH_GPU_ARCHITECTURES=gfx1036")));
}

TEST(OwnProgram, WithoutTheVendorsMatmulsSaysHowToGetThem) {
  gpu::Runtime without = kHip;
  without.library = "";
  EXPECT_THAT(found({.runtimes = {without}, .devices = {kRadeon}}),
              ElementsAre(is(Level::warning, "matmul-library", "rocBLAS is missing", "apt install"),
                          Field(&Finding::level, Level::ok)));
}

TEST(OwnProgram, WhoseRuntimeHangsSaysSo) {
  IsolatedProcess process([](std::string_view) -> std::string {
    pause();
    return "";
  });
  EXPECT_THAT(found(read_program(process, 0.05)),
              ElementsAre(is(Level::broken, "runtime", "gave no answer within 0 s", "restart")));
}

TEST(OwnProgram, IsReadFromAnotherProcess) {
  EXPECT_EQ(query_program().fault, "");
  IsolatedProcess process([](std::string_view) -> std::string {
    return R"({"runtimes":[["HIP","5.7","gfx1100","rocBLAS 3.1.0",""]],"devices":[["RX 7900 XT","gfx1100","0000:03:00.0","6.0"]]})";
  });
  EXPECT_THAT(found(read_program(process, 10)),
              ElementsAre(is(Level::ok, "device", "device=gpu:0: RX 7900 XT, gfx1100, 6.0", "")));
}

TEST(OwnProgram, ThatShowsAGpuHasItsLibrarySomewhere) {
  const Machine machine{.gpus = {{.vendor = PciGpu::Vendor::nvidia, .pci_address = "0000:01:00.0"}},
                        .nvidia_version = "580.95.05"};
  Findings all;
  check_runtimes(machine, nullptr, all);
  EXPECT_THAT(all, ElementsAre(Field(&Finding::id, "nvidia-library")));
  const Program program{.runtimes = {{.name = "CUDA", .architectures = "sm_90"}},
                        .devices = {{.name = "H200", .architecture = "sm_90"}}};
  all.clear();
  check_runtimes(machine, &program, all);
  EXPECT_THAT(all, testing::IsEmpty());
}

}  // namespace
}  // namespace hearth::doctor
