#include "exec/device/gpu_choice.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace hearth::exec {
namespace {

using gpu::DeviceInfo;
using testing::AllOf;
using testing::HasSubstr;

const gpu::Runtime kHip{.name = "HIP", .version = "5.7.31921", .architectures = "gfx1030 gfx1100"};
const gpu::Runtime kCuda{.name = "CUDA", .version = "13.0", .architectures = "sm_80 sm_90"};
const gpu::Runtime kEmulator{.name = "emulated", .architectures = "emu"};
const DeviceInfo kDesktop{
    .name = "AMD Radeon Graphics", .architecture = "gfx1036", .pci_address = "0000:0c:00.0"};
const DeviceInfo kFirst{.name = "RX 7900 XT", .architecture = "gfx1100", .pci_address = "0000:03:00.0"};
const DeviceInfo kSecond{.name = "RX 6800", .architecture = "gfx1030", .pci_address = "0000:0a:00.0"};
const DeviceInfo kOther{.name = "RX 7800 XT", .architecture = "gfx1101", .pci_address = "0000:0b:00.0"};

std::string refusal(const std::string& device, const std::vector<DeviceInfo>& gpus,
                    const std::vector<gpu::Runtime>& runtimes) {
  try {
    ADD_FAILURE() << device << " is GPU " << choose_gpu(device, gpus, runtimes);
  } catch (const UserError& error) {
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "";
}

TEST(GpuChoice, KnowsTheFormsOfADevice) {
  for (const char* device :
       {"gpu", "gpu:0", "gpu:12", "gpu:0000:03:00.0", "gpu:0A:00.0", "emulated", "emulated:1"})
    EXPECT_TRUE(names_gpu(device)) << device;
  for (const char* device : {"", "cpu", "gpus", "gpu:", "gpu:-1", "gpu:x", "gpu:1x", "gpu:03:00",
                             "gpu:0000:03:00,0", "cuda", "cuda:0", "gpu:99999999999"})
    EXPECT_FALSE(names_gpu(device)) << device;
}

TEST(GpuChoice, TakesTheFirstThatIsNotIntegrated) {
  const std::vector gpus{kDesktop, kFirst, kSecond};
  EXPECT_EQ(choose_gpu("gpu", gpus, {{kHip}}), 1U);
  DeviceInfo told = kFirst;
  told.integrated = true;
  EXPECT_EQ(choose_gpu("gpu", std::vector{told, kSecond}, {{kHip}}), 1U);
}

TEST(GpuChoice, CountsAcrossVendors) {
  const DeviceInfo nvidia{.name = "RTX 4090", .architecture = "sm_89", .pci_address = "0000:41:00.0"};
  const std::vector gpus{kDesktop, kFirst, nvidia};
  const std::vector runtimes{kHip, kCuda};
  EXPECT_EQ(choose_gpu("gpu", gpus, runtimes, 1), 2U);
  EXPECT_EQ(choose_gpu("gpu:2", gpus, runtimes), 2U);
  EXPECT_EQ(choose_gpu("gpu", std::vector{kDesktop, nvidia}, runtimes), 1U) << "with memory of its own";
}

TEST(GpuChoice, TakesTheOneThatIsNamed) {
  const std::vector gpus{kDesktop, kFirst, kSecond};
  EXPECT_EQ(choose_gpu("gpu:2", gpus, {{kHip}}), 2U);
  EXPECT_EQ(choose_gpu("gpu:0000:0A:00.0", gpus, {{kHip}}), 2U);
  EXPECT_EQ(choose_gpu("gpu:03:00.0", gpus, {{kHip}}), 1U);
  const gpu::Runtime wide{.name = "HIP", .architectures = "gfx1030 gfx1036"};
  EXPECT_EQ(choose_gpu("gpu:0", gpus, {{wide}}), 0U) << "integrated, but named";
  EXPECT_EQ(choose_gpu("emulated:1", std::vector(2, DeviceInfo{.architecture = "emu"}), {{kEmulator}}), 1U);
}

TEST(GpuChoice, SaysWhatIsMissing) {
  gpu::Runtime without = kHip;
  without.fault = "no ROCm-capable device is detected";
  EXPECT_EQ(
      refusal("gpu", {}, {without}),
      "no GPU found for device=gpu: no ROCm-capable device is detected; check ls -l /dev/kfd /dev/dri, and "
      "that id lists the groups render and video; run hearth doctor to see what is missing");
  EXPECT_THAT(refusal("gpu", {}, {kCuda}), HasSubstr("check nvidia-smi"));
  EXPECT_THAT(refusal("gpu", {kDesktop}, {kHip}), HasSubstr("device=gpu:0000:0c:00.0"));
  EXPECT_EQ(
      refusal("gpu:2", {kDesktop, kFirst}, {kHip}),
      "device=gpu:2 is not among the GPUs of this machine: 0 AMD Radeon Graphics (gfx1036, 0000:0c:00.0, "
      "integrated), 1 RX 7900 XT (gfx1100, 0000:03:00.0); set device=gpu:0000:0c:00.0");
  EXPECT_THAT(refusal("gpu:0000:04:00.0", {kFirst}, {kHip}), HasSubstr("0000:03:00.0"));
}

TEST(GpuChoice, RefusesWhatThisProgramCannotDrive) {
  EXPECT_THAT(refusal("gpu", {kOther}, {kHip}),
              HasSubstr("HEARTH_GPU_ARCHITECTURES=gfx1101 tools/build --gpu hip"));
  EXPECT_THAT(refusal("gpu", {}, {}), HasSubstr("tools/build --gpu hip"));
  EXPECT_THAT(refusal("gpu", {}, {kHip, kCuda}), AllOf(HasSubstr("/dev/kfd"), HasSubstr("nvidia-smi")));
}

TEST(GpuChoice, KernelsRunOnTheirOwnArchitectureOrOnLaterOnesOfNvidia) {
  EXPECT_TRUE(has_kernels_for("gfx1030 gfx1100", "gfx1100"));
  EXPECT_FALSE(has_kernels_for("gfx1030 gfx1100", "gfx110"));
  EXPECT_FALSE(has_kernels_for("gfx1030 gfx1100", "gfx1101"));
  EXPECT_TRUE(has_kernels_for("sm_80 sm_90", "sm_86"));
  EXPECT_TRUE(has_kernels_for("sm_80 sm_90", "sm_120"));
  EXPECT_FALSE(has_kernels_for("sm_80 sm_90", "sm_75"));
}

TEST(GpuChoice, WarnsOfACardPassedOffAsAnother) {
  EXPECT_EQ(override_warning(nullptr), "");
  EXPECT_THAT(override_warning("11.0.0"), HasSubstr("HSA_OVERRIDE_GFX_VERSION=11.0.0 is set"));
}

}  // namespace
}  // namespace hearth::exec
