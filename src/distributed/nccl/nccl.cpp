#include "distributed/nccl/nccl.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "backend/gpu/driver.h"
#include "base/error.h"
#include "base/function_ref.h"
#include "distributed/forwarding_group.h"
#include "distributed/nccl/library.h"
#include "distributed/probe.h"

/// Vendor libraries may hang when a group is created or in a collective, and may compute wrong sums on
/// unusual machines. The group is therefore created and tested in a separate thread with a timeout. The ranks
/// then exchange their failures over the host group (agree), so that either all ranks use the GPU group or
/// none does. A group that failed is aborted. A thread that still hangs is detached; shared pointers keep
/// alive what it uses.
namespace hearth::distributed {
namespace {

/// Number of elements in the self-test's arrays: one; few enough for a single kernel; several of the
/// library's chunks and a remainder.
constexpr int64_t kTestCounts[] = {1, 1000, (1 << 20) + 13};
constexpr int64_t kMaxCount = kTestCounts[2];
/// Time given to a thread, after its collective was aborted, to return.
constexpr double kLeaveSeconds = 5;
/// Timeout of the self-test's stream, which practically never expires: the self-test as a whole has a
/// timeout.
constexpr double kEver = 1e6;

NcclType type_of(DType dtype) {
  HEARTH_CHECK(dtype == DType::f32 || dtype == DType::bf16);
  return dtype == DType::f32 ? NcclType::f32 : NcclType::bf16;
}

/// A rank of a group of GPUs. Collectives on device memory are queued on a stream; those on host memory are
/// forwarded to the host group. Collectives on device memory must not use the host group, because a hung
/// thread may outlive it.
class NcclProcessGroup : public ForwardingGroup {
 public:
  /// Creates this rank's communicator. Blocks until all ranks have called this with the same id. Uses the
  /// current GPU of the calling thread.
  NcclProcessGroup(ProcessGroup& host, std::shared_ptr<const NcclLibrary> library, const NcclId& id, int rank,
                   int size)
      : ForwardingGroup(host), library_(std::move(library)), rank_(rank) {
    NcclComm* joined = nullptr;
    library_->check(library_->comm_init_rank(&joined, size, id, rank), "joining the group of GPUs");
    comm_ = joined;
  }
  ~NcclProcessGroup() override {
    if (std::uncaught_exceptions() > 0) return;
    if (NcclComm* comm = comm_) library_->comm_destroy(comm);
  }
  NcclProcessGroup(const NcclProcessGroup&) = delete;
  NcclProcessGroup& operator=(const NcclProcessGroup&) = delete;

  /// Aborts queued collectives, from any thread; device collectives fail afterwards. May block until every
  /// rank has called it.
  void abort() {
    if (NcclComm* comm = comm_.exchange(nullptr)) library_->comm_abort(comm);
  }

  using ForwardingGroup::all_gather, ForwardingGroup::all_reduce, ForwardingGroup::broadcast,
      ForwardingGroup::receive, ForwardingGroup::reduce, ForwardingGroup::reduce_scatter,
      ForwardingGroup::send;
  bool has(Capability capability) const override {
    return capability == Capability::device_memory || ForwardingGroup::has(capability);
  }
  void all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream) override {
    const int result = library_->all_reduce(data, data, static_cast<size_t>(count), type_of(dtype),
                                            NcclOperation::sum, comm(), stream.handle());
    library_->check(result, "all_reduce");
  }
  void reduce(void* data, int64_t count, DType dtype, int root, gpu::Stream& stream) override {
    const int result = library_->reduce(data, data, static_cast<size_t>(count), type_of(dtype),
                                        NcclOperation::sum, root, comm(), stream.handle());
    library_->check(result, "reduce");
  }
  void reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream) override {
    const int result = library_->reduce_scatter(in, out, static_cast<size_t>(count), type_of(dtype),
                                                NcclOperation::sum, comm(), stream.handle());
    library_->check(result, "reduce_scatter");
  }
  void all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream) override {
    const int result =
        library_->all_gather(in, out, static_cast<size_t>(num_bytes), NcclType::u8, comm(), stream.handle());
    library_->check(result, "all_gather");
  }
  void broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream) override {
    const int result = library_->broadcast(data, data, static_cast<size_t>(num_bytes), NcclType::u8, root,
                                           comm(), stream.handle());
    library_->check(result, "broadcast");
  }
  void send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream) override {
    const int result =
        library_->send(data, static_cast<size_t>(num_bytes), NcclType::u8, to, comm(), stream.handle());
    library_->check(result, "send");
  }
  void receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream) override {
    const int result =
        library_->receive(data, static_cast<size_t>(num_bytes), NcclType::u8, from, comm(), stream.handle());
    library_->check(result, "receive");
  }

 private:
  NcclComm* comm() const {
    NcclComm* const joined = comm_;
    if (joined == nullptr) throw CommError(rank_, "the group of GPUs was aborted");
    return joined;
  }

  std::shared_ptr<const NcclLibrary> library_;
  std::atomic<NcclComm*> comm_ = nullptr;
  int rank_;
};

/// Exchanges the failures of all ranks and returns that of the lowest rank that has one; empty if none has.
/// Collective call.
std::string agree(ProcessGroup& host, const std::string& fault) {
  using Words = std::array<char, 512>;
  Words own{};
  std::copy_n(fault.begin(), std::min(fault.size(), own.size() - 1), own.begin());
  std::vector<Words> all(static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank][0] != 0) return fmt::format("rank {}: {}", rank, all[rank].data());
  return "";
}

/// Runs `make` and returns the message of the exception that it throws; empty if it throws none.
std::string fault_of(FunctionRef<void()> make) {
  try {
    make();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// The self-test of a group: runs collectives on numbers that every rank can compute, and compares the
/// results.
class CollectiveTest {
 public:
  CollectiveTest(NcclProcessGroup& group, int rank, int size, gpu::Device& device)
      : group_(group),
        rank_(rank),
        size_(size),
        memory_(device, kMaxCount * int64_t{sizeof(float)}),
        stream_(device),
        host_(static_cast<size_t>(kMaxCount)) {}

  /// Runs all collectives even after a failure, because other ranks wait for each. Returns the first failure.
  std::string find_fault() {
    const int root = size_ - 1;
    const auto sum = [&](int64_t i) { return sum_of_test_numbers(size_, i); };
    for (const int64_t count : kTestCounts) {
      check(
          "sum", count, [&] { group_.all_reduce(data(), count, DType::f32, stream_); }, sum);
      check(
          "sum for one rank", count, [&] { group_.reduce(data(), count, DType::f32, root, stream_); },
          [&](int64_t i) { return rank_ == root ? sum(i) : test_number(rank_, i); });
      check(
          "copy", count, [&] { group_.broadcast(data(), count * kBytes, root, stream_); },
          [&](int64_t i) { return test_number(root, i); });
    }
    return fault_;
  }

 private:
  static constexpr int64_t kBytes = sizeof(float);
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }

  void check(const char* what, int64_t count, FunctionRef<void()> collective,
             FunctionRef<float(int64_t)> right) {
    for (int64_t i = 0; i < count; ++i) host_[static_cast<size_t>(i)] = test_number(rank_, i);
    stream_.copy_in(memory_.data(), host_.data(), count * kBytes);
    collective();
    stream_.copy_out(host_.data(), memory_.data(), count * kBytes);
    stream_.synchronize(kEver);
    for (int64_t i = 0; i < count && fault_.empty(); ++i) {
      if (host_[static_cast<size_t>(i)] != right(i))
        fault_ = fmt::format("wrong {} of {} test numbers, first at index {}", what, count, i);
    }
  }

  NcclProcessGroup& group_;
  int rank_, size_;
  gpu::Memory memory_;
  gpu::Stream stream_;
  std::vector<float> host_;
  std::string fault_;
};

/// A thread whose work may hang. The destructor joins it if its work has ended; otherwise detaches it, and
/// the work keeps the objects that it owns.
class ThreadThatMayHang {
 public:
  explicit ThreadThatMayHang(std::function<void()> work)
      : ThreadThatMayHang(std::packaged_task<void()>(std::move(work))) {}
  ~ThreadThatMayHang() { ends_within(0) ? thread_.join() : thread_.detach(); }
  ThreadThatMayHang(const ThreadThatMayHang&) = delete;
  ThreadThatMayHang& operator=(const ThreadThatMayHang&) = delete;

  bool ends_within(double seconds) const {
    return ended_.wait_for(std::chrono::duration<double>(seconds)) == std::future_status::ready;
  }

 private:
  explicit ThreadThatMayHang(std::packaged_task<void()> task)
      : ended_(task.get_future()), thread_(std::move(task)) {}

  std::future<void> ended_;
  std::thread thread_;
};

/// The creation and self-test of a group, which run() performs in a separate thread.
class GroupCreation {
 public:
  GroupCreation(std::shared_ptr<const NcclLibrary> library, const NcclId& id, ProcessGroup& host,
                gpu::DeviceInfo gpu)
      : host_(host),
        library_(std::move(library)),
        id_(id),
        rank_(host.rank()),
        size_(host.size()),
        gpu_(std::move(gpu)) {}

  void run() {
    fault_ = fault_of([&] {
      // Opening the device makes its GPU the thread's current one, which the library uses.
      gpu::Device device(gpu_);
      const auto group = std::make_shared<NcclProcessGroup>(host_, library_, id_, rank_, size_);
      if (!keep(group)) return group->abort();
      if (std::string wrong = CollectiveTest(*group, rank_, size_, device).find_fault(); !wrong.empty())
        throw CommError(rank_, wrong);
    });
  }
  /// Returns the failure, after run() has ended.
  const std::string& fault() const { return fault_; }
  /// Returns the group if it was created. If run() creates it after this call, run() aborts it.
  std::shared_ptr<NcclProcessGroup> give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    return group_;
  }
  /// Returns the group; null if it is not created yet.
  std::shared_ptr<NcclProcessGroup> group() {
    const std::lock_guard lock(mutex_);
    return group_;
  }

 private:
  /// Stores the group. Returns false, without storing it, if give_up() was called before.
  bool keep(const std::shared_ptr<NcclProcessGroup>& group) {
    const std::lock_guard lock(mutex_);
    if (!given_up_) group_ = group;
    return !given_up_;
  }

  ProcessGroup& host_;
  std::shared_ptr<const NcclLibrary> library_;
  NcclId id_;
  int rank_, size_;
  gpu::DeviceInfo gpu_;
  std::mutex mutex_;
  std::shared_ptr<NcclProcessGroup> group_;
  std::string fault_;
  bool given_up_ = false;
};

/// Creates and tests the group of GPUs; returns it, or the failure of any rank. Collective call.
OpenedNccl open_group(std::shared_ptr<const NcclLibrary> library, const NcclId& id, ProcessGroup& host,
                      const gpu::DeviceInfo& gpu, double deadline_seconds) {
  const auto trial = std::make_shared<GroupCreation>(std::move(library), id, host, gpu);
  const ThreadThatMayHang beginning([trial] { trial->run(); });
  const auto fault = [&] {
    if (beginning.ends_within(deadline_seconds)) return trial->fault();
    return fmt::format("{} timed out after {} s",
                       trial->group() ? "a collective" : "joining the group of GPUs", deadline_seconds);
  };
  OpenedNccl opened;
  opened.fault = agree(host, fault());
  if (opened.fault.empty()) {
    opened.group = trial->group();
  } else if (const std::shared_ptr<NcclProcessGroup> group = trial->give_up()) {
    // comm_abort blocks until every rank calls it, so the ranks call it only after agreeing that the group
    // has failed.
    const ThreadThatMayHang abort([group] { group->abort(); });
    if (abort.ends_within(kLeaveSeconds)) beginning.ends_within(kLeaveSeconds);
  }
  return opened;
}

}  // namespace

OpenedNccl open_nccl(ProcessGroup& host, const gpu::DeviceInfo& gpu, double deadline_seconds) {
  std::shared_ptr<NcclLibrary> library;
  NcclId id{};
  OpenedNccl opened;
  const std::string missing = fault_of([&] {
    library = std::make_shared<NcclLibrary>(NcclLibrary::default_path(gpu.driver->runtime().name));
    opened.version = library->version();
    if (host.rank() == 0) library->check(library->get_unique_id(&id), "creating the id of the group of GPUs");
  });
  opened.fault = agree(host, missing);
  if (!opened.fault.empty()) return opened;
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  OpenedNccl group = open_group(std::move(library), id, host, gpu, deadline_seconds);
  group.version = opened.version;
  return group;
}

}  // namespace hearth::distributed
