#include "distributed/nccl.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <future>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "distributed/probe.h"

namespace hearth::distributed {
namespace {

/// One element; one kernel's; several of the library's chunks and a rest.
constexpr int64_t kTrialCounts[] = {1, 1000, (1 << 20) + 13};
constexpr int64_t kMostCount = kTrialCounts[2];
/// For a thread to notice that its collective was aborted.
constexpr double kLeaveSeconds = 5;
/// The trial's own deadline comes before that of its stream.
constexpr double kEver = 1e6;

NcclType type_of(DType dtype) {
  HEARTH_CHECK(dtype == DType::f32 || dtype == DType::bf16);
  return dtype == DType::f32 ? NcclType::f32 : NcclType::bf16;
}

}  // namespace

NcclTeam::NcclTeam(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int rank, int size)
    : library_(std::move(library)), rank_(rank), size_(size) {
  NcclComm* joined = nullptr;
  library_->check(library_->comm_init_rank(&joined, size, id, rank), "joining the group of GPUs");
  comm_ = joined;
}

NcclTeam::~NcclTeam() {
  if (std::uncaught_exceptions() > 0) return;
  if (NcclComm* comm = comm_) library_->comm_destroy(comm);
}

void NcclTeam::abort() {
  if (NcclComm* comm = comm_.exchange(nullptr)) library_->comm_abort(comm);
}

NcclComm* NcclTeam::comm() const {
  NcclComm* const joined = comm_;
  if (joined == nullptr) throw CommError(rank_, "the group of GPUs was aborted");
  return joined;
}

void NcclTeam::all_reduce(void* data, int64_t count, DType dtype, gpu::Stream& stream) {
  const int result = library_->all_reduce(data, data, static_cast<size_t>(count), type_of(dtype),
                                          NcclOperation::sum, comm(), stream.handle());
  library_->check(result, "all_reduce");
}

void NcclTeam::reduce(float* data, int64_t count, int root, gpu::Stream& stream) {
  const int result = library_->reduce(data, data, static_cast<size_t>(count), NcclType::f32,
                                      NcclOperation::sum, root, comm(), stream.handle());
  library_->check(result, "reduce");
}

void NcclTeam::broadcast(void* data, int64_t num_bytes, int root, gpu::Stream& stream) {
  const int result = library_->broadcast(data, data, static_cast<size_t>(num_bytes), NcclType::u8, root,
                                         comm(), stream.handle());
  library_->check(result, "broadcast");
}

void NcclTeam::reduce_scatter(const void* in, void* out, int64_t count, DType dtype, gpu::Stream& stream) {
  const int result = library_->reduce_scatter(in, out, static_cast<size_t>(count), type_of(dtype),
                                              NcclOperation::sum, comm(), stream.handle());
  library_->check(result, "reduce_scatter");
}

void NcclTeam::all_gather(const void* in, void* out, int64_t num_bytes, gpu::Stream& stream) {
  const int result =
      library_->all_gather(in, out, static_cast<size_t>(num_bytes), NcclType::u8, comm(), stream.handle());
  library_->check(result, "all_gather");
}

void NcclTeam::send(const void* data, int64_t num_bytes, int to, gpu::Stream& stream) {
  const int result =
      library_->send(data, static_cast<size_t>(num_bytes), NcclType::u8, to, comm(), stream.handle());
  library_->check(result, "send");
}

void NcclTeam::receive(void* data, int64_t num_bytes, int from, gpu::Stream& stream) {
  const int result =
      library_->receive(data, static_cast<size_t>(num_bytes), NcclType::u8, from, comm(), stream.handle());
  library_->check(result, "receive");
}

namespace {

/// The sentence that the first rank with a fault says; empty: none has any.
std::string agree(Transport& host, const std::string& fault) {
  using Words = std::array<char, 512>;
  Words own{};
  std::copy_n(fault.begin(), std::min(fault.size(), own.size() - 1), own.begin());
  std::vector<Words> all(static_cast<size_t>(host.size()));
  host.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank][0] != 0) return fmt::format("rank {}: {}", rank, all[rank].data());
  return "";
}

/// What `make` throws, in words.
std::string fault_of(FunctionRef<void()> make) {
  try {
    make();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

/// Collectives of numbers that every rank knows.
class KnownNumbers {
 public:
  KnownNumbers(NcclTeam& team, gpu::Device& device)
      : team_(team),
        memory_(device, kMostCount * int64_t{sizeof(float)}),
        stream_(device),
        host_(static_cast<size_t>(kMostCount)) {}

  /// All of them, whatever goes wrong: the others wait for each. Returns what was wrong first.
  std::string find_fault() {
    const int rank = team_.rank(), root = team_.size() - 1;
    const auto sum = [&](int64_t i) { return sum_of_known_numbers(team_.size(), i); };
    for (const int64_t count : kTrialCounts) {
      check(
          "sum", count, [&] { team_.all_reduce(data(), count, DType::f32, stream_); }, sum);
      check(
          "sum for one rank", count, [&] { team_.reduce(data(), count, root, stream_); },
          [&](int64_t i) { return rank == root ? sum(i) : known_number(rank, i); });
      check(
          "copy", count, [&] { team_.broadcast(data(), count * kBytes, root, stream_); },
          [&](int64_t i) { return known_number(root, i); });
    }
    return fault_;
  }

 private:
  static constexpr int64_t kBytes = sizeof(float);
  float* data() const { return reinterpret_cast<float*>(memory_.data()); }

  void check(const char* what, int64_t count, FunctionRef<void()> collective,
             FunctionRef<float(int64_t)> right) {
    for (int64_t i = 0; i < count; ++i) host_[static_cast<size_t>(i)] = known_number(team_.rank(), i);
    stream_.copy_in(memory_.data(), host_.data(), count * kBytes);
    collective();
    stream_.copy_out(host_.data(), memory_.data(), count * kBytes);
    stream_.synchronize(kEver);
    for (int64_t i = 0; i < count && fault_.empty(); ++i) {
      if (host_[static_cast<size_t>(i)] != right(i))
        fault_ = fmt::format("a wrong {} of {} known numbers, at {}", what, count, i);
    }
  }

  NcclTeam& team_;
  gpu::Memory memory_;
  gpu::Stream stream_;
  std::vector<float> host_;
  std::string fault_;
};

/// A thread whose work may never end: joined where it has, else left alone with all that the work holds.
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

/// A group's beginning.
class Trial {
 public:
  Trial(std::shared_ptr<const NcclLibrary> library, const NcclId& id, const Transport& host, int gpu)
      : library_(std::move(library)), id_(id), rank_(host.rank()), size_(host.size()), gpu_(gpu) {}

  void run() {
    fault_ = fault_of([&] {
      // The library goes by the GPU that a thread used last.
      gpu::Device device(gpu_);
      const auto team = std::make_shared<NcclTeam>(library_, id_, rank_, size_);
      if (!keep(team)) return team->abort();
      if (std::string wrong = KnownNumbers(*team, device).find_fault(); !wrong.empty())
        throw CommError(rank_, wrong);
    });
  }
  /// What was wrong, once run() has ended.
  const std::string& fault() const { return fault_; }
  /// None where the group never came to be; one that comes from now on is aborted.
  std::shared_ptr<NcclTeam> give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    return team_;
  }
  /// None as long as the group has not come to be.
  std::shared_ptr<NcclTeam> team() {
    const std::lock_guard lock(mutex_);
    return team_;
  }

 private:
  /// False where nobody waits for it any more.
  bool keep(const std::shared_ptr<NcclTeam>& team) {
    const std::lock_guard lock(mutex_);
    if (!given_up_) team_ = team;
    return !given_up_;
  }

  std::shared_ptr<const NcclLibrary> library_;
  NcclId id_;
  int rank_, size_, gpu_;
  std::mutex mutex_;
  std::shared_ptr<NcclTeam> team_;
  std::string fault_;
  bool given_up_ = false;
};

/// The group of GPUs, or what is wrong on any rank.
OpenedNccl open_group(std::shared_ptr<const NcclLibrary> library, const NcclId& id, Transport& host, int gpu,
                      double deadline_seconds) {
  const auto trial = std::make_shared<Trial>(std::move(library), id, host, gpu);
  const ThreadThatMayHang beginning([trial] { trial->run(); });
  const auto fault = [&] {
    if (beginning.ends_within(deadline_seconds)) return trial->fault();
    return fmt::format("{} gave no answer for {} s",
                       trial->team() ? "a collective" : "joining the group of GPUs", deadline_seconds);
  };
  OpenedNccl opened;
  opened.fault = agree(host, fault());
  if (opened.fault.empty()) {
    opened.team = trial->team();
  } else if (const std::shared_ptr<NcclTeam> team = trial->give_up()) {
    // Aborts wait for each other, so that all ranks begin them once they have agreed.
    const ThreadThatMayHang abort([team] { team->abort(); });
    if (abort.ends_within(kLeaveSeconds)) beginning.ends_within(kLeaveSeconds);
  }
  return opened;
}

}  // namespace

OpenedNccl open_nccl(Transport& host, int gpu, double deadline_seconds) {
  std::shared_ptr<NcclLibrary> library;
  NcclId id{};
  OpenedNccl opened;
  const std::string missing = fault_of([&] {
    library = std::make_shared<NcclLibrary>(NcclLibrary::usual_path());
    opened.version = library->version();
    if (host.rank() == 0) library->check(library->get_unique_id(&id), "naming the group of GPUs");
  });
  opened.fault = agree(host, missing);
  if (!opened.fault.empty()) return opened;
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  OpenedNccl group = open_group(std::move(library), id, host, gpu, deadline_seconds);
  group.version = opened.version;
  return group;
}

}  // namespace hearth::distributed
