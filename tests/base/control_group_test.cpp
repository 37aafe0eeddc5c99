// Memory limits of control groups, read from the files of machines of several kinds.
#include "base/control_group.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "temporary_folder.h"

namespace hearth {
namespace {

/// The root of a file system.
class ControlGroup : public testing::Test {
 protected:
  void put(const std::string& name, std::string_view contents) const {
    make_folder((folder_.path() / name).parent_path());
    write_file_atomically(folder_.path() / name, contents);
  }
  void put_limit(const std::string& group, std::string_view limit, std::string_view used) const {
    put(group + "/memory.max", limit);
    put(group + "/memory.current", used);
  }
  void put_old_limit(const std::string& group, std::string_view limit, std::string_view used) const {
    put(group + "/memory.limit_in_bytes", limit);
    put(group + "/memory.usage_in_bytes", used);
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

constexpr const char* kMounts =
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
constexpr const char* kOldMounts =
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST_F(ControlGroup, WithoutFilesHasNoLimit) {
  EXPECT_FALSE(memory_limit(root()));
  EXPECT_FALSE(memory_below_limit(root()));
  EXPECT_EQ(num_memory_kills(root()), 0);
}

TEST_F(ControlGroup, OfASliceIsReadWithThoseAboveIt) {
  put("proc/self/mountinfo", kMounts);
  put("proc/self/cgroup", "0::/system.slice/slurm/job_7\n");
  put_limit("sys/fs/cgroup/system.slice/slurm/job_7", "max\n", "300\n");
  EXPECT_FALSE(memory_limit(root()));
  put_limit("sys/fs/cgroup/system.slice/slurm", "5000\n", "1200\n");
  EXPECT_EQ(memory_limit(root()), 5000);
  EXPECT_EQ(memory_below_limit(root()), 3800);
  // The kernel drops file cache that has not been used lately.
  put("sys/fs/cgroup/system.slice/slurm/memory.stat", "anon 200\ninactive_file 1000\nactive_file 0\n");
  EXPECT_EQ(memory_below_limit(root()), 4800);
  put_limit("sys/fs/cgroup/system.slice/slurm/job_7", "1000\n", "300\n");
  EXPECT_EQ(memory_limit(root()), 1000);
  EXPECT_EQ(memory_below_limit(root()), 700);
  put("sys/fs/cgroup/system.slice/slurm/job_7/memory.events", "low 0\noom 4\noom_kill 3\noom_group_kill 0\n");
  EXPECT_EQ(num_memory_kills(root()), 3);
}

TEST_F(ControlGroup, OfVersionOneIsRead) {
  put("proc/self/mountinfo", kOldMounts);
  put("proc/self/cgroup", "4:memory:/user/run\n2:cpu:/elsewhere\n0::/\n");
  put_old_limit("sys/fs/cgroup/memory", "9223372036854771712\n", "99999\n");
  put_old_limit("sys/fs/cgroup/memory/user", "9000\n", "1000\n");
  put_old_limit("sys/fs/cgroup/memory/user/run", "8000\n", "100\n");
  EXPECT_EQ(memory_limit(root()), 8000);
  EXPECT_EQ(memory_below_limit(root()), 7900);
  put("sys/fs/cgroup/memory/user/run/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(num_memory_kills(root()), 2);
}

TEST_F(ControlGroup, OfAContainerIsTheMountsRoot) {
  put("proc/self/cgroup", "4:memory:/docker/abc\n");
  put("proc/self/mountinfo", "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put_old_limit("sys/fs/cgroup/memory", "7000\n", "1000\n");
  EXPECT_EQ(memory_below_limit(root()), 6000);
  // Another namespace than the mount's: the group is not below it.
  put("proc/self/mountinfo", kMounts);
  put("proc/self/cgroup", "0::/../../other\n");
  put_limit("sys/fs/cgroup", "600\n", "100\n");
  EXPECT_EQ(memory_below_limit(root()), 500);
}

TEST_F(ControlGroup, CountsTheMachinesKillsWhereItCountsNone) {
  put("proc/vmstat", "nr_free_pages 12\noom_kill 5\n");
  EXPECT_EQ(num_memory_kills(root()), 5);
}

}  // namespace
}  // namespace hearth
