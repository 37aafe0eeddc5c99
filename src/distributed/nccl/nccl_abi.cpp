// Checks at compile time that the declarations of library.h agree with the vendor's header, if that is
// installed.
#if __has_include(<rccl/rccl.h>) && __has_include(<hip/hip_runtime_api.h>)
#ifndef __HIP_PLATFORM_AMD__
#define __HIP_PLATFORM_AMD__  // NOLINT(bugprone-reserved-identifier): HIP asks for it.
#endif
#include <rccl/rccl.h>
#define HEARTH_HAS_NCCL_HEADER
#elif __has_include(<nccl.h>) && __has_include(<cuda_runtime.h>)
#include <nccl.h>
#define HEARTH_HAS_NCCL_HEADER
#endif

#ifdef HEARTH_HAS_NCCL_HEADER
#include <type_traits>

#include "distributed/nccl/library.h"

namespace hearth::distributed {

template <typename Ours, typename Theirs>
inline constexpr bool is_passed_alike =
    sizeof(Ours) == sizeof(Theirs) &&
    std::is_pointer_v<Ours> == std::is_pointer_v<Theirs>&& std::is_class_v<Ours> == std::is_class_v<Theirs>;
template <typename Ours, typename Theirs>
inline constexpr bool is_called_alike = false;
template <typename R, typename... Ours, typename S, typename... Theirs>
requires(sizeof...(Ours) ==
         sizeof...(Theirs)) inline constexpr bool is_called_alike<R (*)(Ours...), S (*)(Theirs...)> =
    is_passed_alike<R, S> && (... && is_passed_alike<Ours, Theirs>);

static_assert(is_called_alike<decltype(NcclLibrary::get_version), decltype(&ncclGetVersion)>);
static_assert(is_called_alike<decltype(NcclLibrary::get_error_string), decltype(&ncclGetErrorString)>);
static_assert(is_called_alike<decltype(NcclLibrary::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(is_called_alike<decltype(NcclLibrary::comm_init_rank), decltype(&ncclCommInitRank)>);
static_assert(is_called_alike<decltype(NcclLibrary::comm_destroy), decltype(&ncclCommDestroy)>);
static_assert(is_called_alike<decltype(NcclLibrary::comm_abort), decltype(&ncclCommAbort)>);
static_assert(is_called_alike<decltype(NcclLibrary::all_reduce), decltype(&ncclAllReduce)>);
static_assert(is_called_alike<decltype(NcclLibrary::reduce), decltype(&ncclReduce)>);
static_assert(is_called_alike<decltype(NcclLibrary::broadcast), decltype(&ncclBroadcast)>);
static_assert(is_called_alike<decltype(NcclLibrary::reduce_scatter), decltype(&ncclReduceScatter)>);
static_assert(is_called_alike<decltype(NcclLibrary::all_gather), decltype(&ncclAllGather)>);
static_assert(is_called_alike<decltype(NcclLibrary::send), decltype(&ncclSend)>);
static_assert(is_called_alike<decltype(NcclLibrary::receive), decltype(&ncclRecv)>);
static_assert(ncclSuccess == 0 && static_cast<int>(NcclOperation::sum) == ncclSum);
static_assert(static_cast<int>(NcclType::u8) == ncclUint8 && static_cast<int>(NcclType::f32) == ncclFloat32 &&
              static_cast<int>(NcclType::bf16) == ncclBfloat16);

}  // namespace hearth::distributed
#endif
