#include "comm/nccl.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/function_ref.h"
#include "comm/probe.h"

namespace hearth::comm {
namespace {

/// One element; one kernel's; several of the library's chunks and a rest.
constexpr int64_t kCounts[] = {1, 1000, (1 << 20) + 13};
constexpr int64_t kMostCount = kCounts[2];
/// For a thread to notice that its collective was aborted.
constexpr std::chrono::seconds kLeave{5};
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
  library_->check(library_->comm_init_rank(&joined, size, id, rank), "joining the group of cards");
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
  if (joined == nullptr) throw CommError(rank_, "the group of cards was aborted");
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
    for (const int64_t count : kCounts) {
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
    stream_.synchronise(kEver);
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

/// A group's beginning, in a thread of its own: where the library hangs, that hangs, and has what it uses.
class Trial : public std::enable_shared_from_this<Trial> {
 public:
  Trial(std::shared_ptr<const NcclLibrary> library, const NcclId& id, const Transport& host, int card)
      : library_(std::move(library)), id_(id), rank_(host.rank()), size_(host.size()), card_(card) {}

  /// What is wrong; empty: nothing, and there is a team.
  std::string run(double deadline_seconds) {
    std::thread([self = shared_from_this()] { self->work(); }).detach();
    std::unique_lock lock(mutex_);
    const auto is_done = [&] { return done_; };
    if (changed_.wait_for(lock, std::chrono::duration<double>(deadline_seconds), is_done)) return fault_;
    given_up_ = true;
    return fmt::format("{} gave no answer for {} s", team_ ? "a collective" : "joining the group of cards",
                       deadline_seconds);
  }
  /// Where the ranks have agreed on a fault: aborts wait for each other, so that all begin them now, in
  /// threads of their own.
  void abort() {
    std::unique_lock lock(mutex_);
    given_up_ = true;
    if (!team_) return;
    std::thread([self = shared_from_this(), team = team_] {
      team->abort();
      const std::lock_guard ended(self->mutex_);
      self->aborted_ = true;
      self->changed_.notify_all();
    }).detach();
    changed_.wait_for(lock, kLeave, [&] { return done_ && aborted_; });
  }
  std::shared_ptr<NcclTeam> team() const { return team_; }

 private:
  void work() {
    const std::string fault = fault_of([&] {
      // The library goes by the card that a thread used last.
      gpu::Device device(card_);
      const auto team = std::make_shared<NcclTeam>(library_, id_, rank_, size_);
      if (!keep(team)) return team->abort();
      if (std::string wrong = KnownNumbers(*team, device).find_fault(); !wrong.empty())
        throw CommError(rank_, wrong);
    });
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    done_ = true;
    changed_.notify_all();
  }
  /// False where nobody waits for it any more.
  bool keep(const std::shared_ptr<NcclTeam>& team) {
    const std::lock_guard lock(mutex_);
    if (!given_up_) team_ = team;
    return !given_up_;
  }

  std::shared_ptr<const NcclLibrary> library_;
  NcclId id_;
  int rank_, size_, card_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<NcclTeam> team_;
  std::string fault_;
  bool done_ = false, given_up_ = false, aborted_ = false;
};

}  // namespace

OpenedNccl open_nccl(Transport& host, int card, double deadline_seconds) {
  std::shared_ptr<NcclLibrary> library;
  NcclId id{};
  OpenedNccl opened;
  const std::string missing = fault_of([&] {
    library = std::make_shared<NcclLibrary>(NcclLibrary::usual_path());
    opened.version = library->version();
    if (host.rank() == 0) library->check(library->get_unique_id(&id), "naming the group of cards");
  });
  opened.fault = agree(host, missing);
  if (!opened.fault.empty()) return opened;
  host.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0);
  const auto trial = std::make_shared<Trial>(library, id, host, card);
  opened.fault = agree(host, trial->run(deadline_seconds));
  if (opened.fault.empty()) {
    opened.team = trial->team();
  } else {
    trial->abort();
  }
  return opened;
}

}  // namespace hearth::comm
