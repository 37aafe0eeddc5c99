#include "distributed/mpi/mpi_module.h"

#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "base/error.h"

namespace hearth::distributed {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTag = 0;
/// Time of busy polling. After it, polls are separated by sleeps, because another rank may need this
/// processor.
constexpr std::chrono::milliseconds kEager(2);
constexpr unsigned kNapMicroseconds = 50;

void check_mpi(int code, const char* doing) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  internal_error("{} failed: {}", doing, std::string_view(text, static_cast<size_t>(length)));
}

class MpiProcessGroup : public MessageProcessGroup {
 public:
  explicit MpiProcessGroup(double deadline_seconds) : deadline_seconds_(deadline_seconds) {
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "opening MPI");
    if (provided < MPI_THREAD_SERIALIZED) internal_error("this MPI does not support MPI_THREAD_SERIALIZED");
    check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "opening MPI");
    check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "reading the MPI rank");
    check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "reading the number of MPI ranks");
  }
  ~MpiProcessGroup() override { broken_ ? MPI_Abort(MPI_COMM_WORLD, 1) : MPI_Finalize(); }
  MpiProcessGroup(const MpiProcessGroup&) = delete;
  MpiProcessGroup& operator=(const MpiProcessGroup&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

 protected:
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    requests_.assign(out.size() + in.size(), MPI_REQUEST_NULL);
    partners_.clear();
    for (const Incoming& message : in) {
      check_mpi(MPI_Irecv(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE,
                          message.from, kTag, MPI_COMM_WORLD, &requests_[partners_.size()]),
                "receiving by MPI");
      partners_.push_back(message.from);
    }
    for (const Outgoing& message : out) {
      check_mpi(MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, message.to,
                          kTag, MPI_COMM_WORLD, &requests_[partners_.size()]),
                "sending by MPI");
      partners_.push_back(message.to);
    }
    wait();
  }

 private:
  void wait() {
    const auto start = Clock::now();
    for (int done = 0; done == 0;) {
      check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
                "waiting for MPI");
      const std::chrono::duration<double> waited = Clock::now() - start;
      if (done == 0 && waited.count() > deadline_seconds_ + allowed_seconds()) give_up(waited.count());
      if (done == 0 && waited > kEager) usleep(kNapMicroseconds);
    }
  }
  [[noreturn]] void give_up(double waited) {
    broken_ = true;
    int missing = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      check_mpi(MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE), "waiting for MPI");
      if (done == 0) missing = partners_[i];
    }
    throw CommError::missing(missing, whereabouts(), rank_, waited);
  }

  double deadline_seconds_;
  int rank_ = 0, size_ = 1;
  bool broken_ = false;
  std::vector<MPI_Request> requests_;
  std::vector<int> partners_;  ///< for each request, the rank of the other side
};

std::unique_ptr<ProcessGroup> open(double deadline_seconds) {
  return std::make_unique<MpiProcessGroup>(deadline_seconds);
}

}  // namespace
}  // namespace hearth::distributed

extern "C" const hearth::distributed::MpiModule hearth_mpi_module = {hearth::distributed::kMpiModuleLayout,
                                                                     hearth::distributed::open};
