#include "run/ending.h"

#include <exception>
#include <filesystem>

#include "backend/gpu/device.h"
#include "base/error.h"
#include "distributed/process_group.h"

namespace hearth::run {

ExitStatus exit_status_of(FunctionRef<int()> work) {
  try {
    return {.status = work()};
  } catch (const UserReport& error) {
    return {.status = 2, .error_message = error.what(), .has_lines = true};
  } catch (const UserError& error) {
    return {.status = 2, .error_message = error.what()};
  } catch (const std::filesystem::filesystem_error& error) {
    return {
        .status = 2,
        .error_message = fmt::format("cannot use '{}': {}", error.path1().string(), error.code().message())};
  } catch (const std::system_error& error) {
    return {
        .status = 2,
        .error_message = fmt::format("cannot create a thread or another system resource: {}; raise the limit "
                                     "(ulimit -u, ulimit -v) or use fewer threads",
                                     error.code().message())};
  } catch (const std::bad_alloc&) {
    return {.status = 2, .error_message = "out of memory; lower train.batch"};
  } catch (const gpu::DeviceError& error) {
    return {.status = 71,
            .error_message = fmt::format(
                "the GPU failed: {}; the run resumes from its last checkpoint with --resume", error.what())};
  } catch (const distributed::CommError& error) {
    return {.status = 69, .error_message = error.what()};
  } catch (const std::exception& error) {
    return {.status = 70,
            .error_message =
                fmt::format("internal error, please report it with the command you typed:\n{}", error.what()),
            .has_lines = true};
  }
}

}  // namespace hearth::run
