// What is said of machines whose /sys, /dev and /etc are planted.
#include "system/environment.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include "temporary_folder.h"

namespace hearth::system {
namespace {

using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

const gpu::Runtime kHip{
    .name = "HIP", .version = "5.7", .architectures = "gfx1030 gfx1100", .library = "rocBLAS 3.1.0"};
const gpu::DeviceInfo kRadeon{.name = "RX 7900 XT", .architecture = "gfx1100", .pci_address = "0000:03:00.0"};

/// Nobody else's files, and in no group.
const Identity kStranger{.user = 4242, .groups = {4243}};

class Machine : public testing::Test {
 protected:
  /// A healthy one with an RX 7900 XT behind a bridge.
  Machine() {
    plant_gpu("0000:00:01.1", "0000:03:00.0", 16);
    plant_topology("1", 110000, 0x300);
    plant("dev/kfd", "");
    plant("dev/dri/renderD128", "");
    plant("etc/group", "root:x:1:\nrender:x:" + std::to_string(getegid()) + ":someone\n");
    for (const char* file : {"dev/kfd", "dev/dri/renderD128"}) chmod((root() / file).c_str(), 0660);
  }

  const fs::path& root() const { return folder_.path(); }
  void plant(const fs::path& file, std::string_view text) const {
    fs::create_directories((root() / file).parent_path());
    write_file_atomically(root() / file, text);
  }
  void plant_gpu(const std::string& bridge, const std::string& address, int lanes) const {
    const fs::path port = "sys/devices/pci0000:00/" + bridge, gpu = port / address;
    plant(port / "current_link_width", std::to_string(lanes) + "\n");
    plant(port / "current_link_speed", "8.0 GT/s PCIe\n");
    plant(gpu / "current_link_width", "16\n");
    plant(gpu / "current_link_speed", "16.0 GT/s PCIe\n");
    plant(gpu / "max_link_width", "16\n");
    plant(gpu / "class", "0x030000\n");
    plant(gpu / "vendor", "0x1002\n");
    plant(gpu / "device", "0x744c\n");
    plant(gpu / "mem_info_vram_total", "21458059264\n");
    fs::create_directories(root() / "sys/bus/pci/devices");
    fs::create_directory_symlink(root() / gpu, root() / "sys/bus/pci/devices" / address);
    fs::create_directories(root() / "sys/bus/pci/drivers/amdgpu");
    fs::create_directory_symlink(root() / "sys/bus/pci/drivers/amdgpu", root() / gpu / "driver");
  }
  void plant_topology(const std::string& node, int target, int location) const {
    const fs::path nodes = "sys/class/kfd/kfd/topology/nodes";
    plant(nodes / "0/properties", "cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n");
    plant(nodes / node / "properties", "cpu_cores_count 0\nsimd_count 168\ngfx_target_version " +
                                           std::to_string(target) + "\nlocation_id " +
                                           std::to_string(location) + "\ndomain 0\n");
  }
  /// As HIP would show it.
  Environment look(const Identity& identity, std::vector<gpu::DeviceInfo> devices = {kRadeon}) const {
    return {.runtimes = {kHip},
            .devices = std::move(devices),
            .gpus = list_pci_gpus(root()),
            .files = list_device_files(root(), identity)};
  }
  static Identity owner() { return {.user = geteuid(), .groups = {}}; }
  static auto said(const std::string& what, const std::string& remedy) {
    return AllOf(Field(&Hindrance::what, HasSubstr(what)), Field(&Hindrance::remedy, HasSubstr(remedy)));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(Machine, IsReadWithoutAVendorsLibrary) {
  const auto gpus = list_pci_gpus(root());
  ASSERT_EQ(gpus.size(), 1U);
  const PciGpu& gpu = gpus[0];
  EXPECT_EQ(gpu.pci_address, "0000:03:00.0");
  EXPECT_EQ(gpu.architecture, "gfx1100");
  EXPECT_EQ(gpu.driver, "amdgpu");
  EXPECT_EQ(gpu.device_id, "744c");
  EXPECT_EQ(gpu.memory_bytes, 21458059264);
  EXPECT_EQ(gpu.link_width, 16);
  EXPECT_FALSE(gpu.integrated);
  EXPECT_EQ(gfx_name(90010), "gfx90a");
  EXPECT_THAT(hindrances(look(owner())), IsEmpty());
}

TEST_F(Machine, WithoutTheGroupNamesTheGroup) {
  EXPECT_THAT(hindrances(look(kStranger)),
              ElementsAre(said("/dev/kfd, which belongs to the group render", "usermod -aG render,video")));
  const Identity member{.user = 4242, .groups = {getegid()}};
  EXPECT_THAT(hindrances(look(member)), IsEmpty());
}

TEST_F(Machine, WithoutKfdSaysHowToGetIt) {
  fs::remove(root() / "dev/kfd");
  gpu::Runtime without = kHip;
  without.fault = "no ROCm-capable device is detected";
  Environment environment = look(owner(), {});
  environment.runtimes = {without};
  EXPECT_THAT(hindrances(environment), ElementsAre(said("there is no /dev/kfd", "--device /dev/kfd"),
                                                   said("HIP shows no GPU: no ROCm-capable", "rocminfo")));
}

TEST_F(Machine, InANarrowSlotSaysSo) {
  plant("sys/devices/pci0000:00/0000:00:01.1/current_link_width", "4\n");
  const auto gpus = list_pci_gpus(root());
  EXPECT_EQ(gpus[0].link_width, 4) << "of the bridge, where the GPU says 16";
  EXPECT_EQ(gpus[0].link_speed, "8.0 GT/s PCIe");
  EXPECT_THAT(hindrances(look(owner())), ElementsAre(said("4 of its 16 PCIe lanes", "slot")));
}

TEST_F(Machine, WithAnIntegratedGpuAloneSaysHowToUseIt) {
  plant_topology("1", 100306, 0x300);
  EXPECT_TRUE(list_pci_gpus(root())[0].integrated);
  gpu::DeviceInfo desktop = kRadeon;
  desktop.architecture = "gfx1036";
  EXPECT_THAT(hindrances(look(owner(), {desktop})),
              ElementsAre(said("share the processor's memory", "device=gpu:0000:03:00.0"),
                          said("no kernels for gfx1036", "HEARTH_GPU_ARCHITECTURES=gfx1036")));
}

TEST_F(Machine, WhoseGpuIsNotAllKnownIsStillListed) {
  plant_gpu("0000:00:01.2", "0000:0a:00.0", 16);
  fs::remove(root() / "sys/devices/pci0000:00/0000:00:01.2/0000:0a:00.0/driver");
  fs::remove(root() / "sys/devices/pci0000:00/0000:00:01.2/0000:0a:00.0/mem_info_vram_total");
  EXPECT_THAT(hindrances(look(owner())), ElementsAre(said("driver of 0000:0a:00.0 is missing", "modprobe")));
}

TEST_F(Machine, WithoutTheVendorsMatmulsSaysHowToGetThem) {
  Environment environment = look(owner());
  environment.runtimes[0].library = "";
  EXPECT_THAT(hindrances(environment), ElementsAre(said("rocBLAS is missing", "apt install")));
}

TEST_F(Machine, WithAnotherProgramOrAnOverrideSaysSo) {
  Environment environment = look(owner());
  environment.runtimes.clear();
  environment.devices = {};
  environment.gfx_override = "11.0.0";
  EXPECT_THAT(hindrances(environment), ElementsAre(said("without HIP", "tools/build --gpu hip"),
                                                   said("HSA_OVERRIDE_GFX_VERSION=11.0.0", "unset")));
}

TEST(BareMachine, HasNothing) {
  const TemporaryFolder folder;
  EXPECT_THAT(list_device_files(folder.path(), kStranger), IsEmpty());
  EXPECT_THAT(hindrances({.runtimes = {kHip}, .gpus = list_pci_gpus(folder.path())}),
              ElementsAre(Field(&Hindrance::what, HasSubstr("PCI bus"))));
}

}  // namespace
}  // namespace hearth::system
