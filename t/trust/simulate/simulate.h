/*-------------------------------------------------------------------------
 *
 * simulate.h
 *	  Comes before all else in a file of src/ that is to run under simulate.c: its
 *	  atomics, barriers and copies become the simulation's.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SIMULATE_H
#define PGSCALE_SIMULATE_H

#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"

extern uint32 sim_load32(const volatile void *at);
extern uint64 sim_load64(const volatile void *at);
extern void sim_store32(volatile void *at, uint32 value);
extern void sim_store64(volatile void *at, uint64 value);
extern bool sim_swap32(volatile void *at, uint32 *expected, uint32 value);
extern uint64 sim_add64(volatile void *at, int64 n);
extern void sim_acquire(void);
extern void sim_release(void);
extern void sim_full(void);
extern void *sim_copy(void *to, const void *from, size_t n);
extern void *sim_fill(void *to, int byte, size_t n);
extern void sim_pause(void);

/* What a scenario calls and has. */
extern void sim_thread(void (*run) (void *), void *argument);
extern void sim_fail(const char *format,...) pg_attribute_printf(1, 2) pg_attribute_noreturn();
extern int	sim_random(int n);

/* Makes the shared memory and the threads of one run, and looks at it after all have ended. */
extern void sim_begin(void);
extern void sim_end(void);

#undef pg_read_barrier
#undef pg_write_barrier
#undef pg_memory_barrier
#undef pg_spin_delay
#undef memcpy
#undef memset
#define pg_read_barrier()	sim_acquire()
#define pg_write_barrier()	sim_release()
#define pg_memory_barrier()	sim_full()
#define pg_spin_delay()		sim_pause()
#define pg_atomic_read_u32(p)	sim_load32(p)
#define pg_atomic_read_u64(p)	sim_load64(p)
#define pg_atomic_write_u32(p, value)	sim_store32(p, value)
#define pg_atomic_write_u64(p, value)	sim_store64(p, value)
#define pg_atomic_compare_exchange_u32(p, expected, value)	sim_swap32(p, expected, value)
#define pg_atomic_fetch_add_u64(p, n)	sim_add64(p, n)
#define memcpy(to, from, n)	sim_copy(to, from, n)
#define memset(to, byte, n)	sim_fill(to, byte, n)

#endif							/* PGSCALE_SIMULATE_H */
