/*
 * Preloaded into a server after pgscale: in a worker that moves relations, the n-th call of one of the server's functions raises an
 * error. The calls are those that pgscale makes itself; the library puts itself in their way, in the table of addresses through
 * which pgscale reaches the server (its GOT).
 *
 * struct calls in the file that FAILING_CALLS names, which all processes map, says which call is meant, and counts them all, by
 * the part of an online move that they belong to. In a critical section nothing counts, as an error would be a crash there.
 */
#define _GNU_SOURCE
#include "postgres.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

#define FUNCTIONS	900

/* Parts of an online move: what is before it, copying until the first lock, what is done under the lock, what is after the switch. */
enum
{
	BEFORE,
	COPY,
	SWITCH,
	CLEAN_UP,
	PARTS
};

/* relocation_online_calls.pl knows this layout */
struct calls
{
	int32		part;			/* of the call that fails */
	int32		function;		/* its number; -1: none fails */
	int32		left;			/* that many calls are to come before it */
	int32		sqlstate;		/* of the error */
	int32		hits;			/* 1: it has failed */
	int32		n;				/* functions */
	char		message[100];
	char		names[FUNCTIONS][64];
	int32		counts[FUNCTIONS][PARTS];
};

static struct calls *calls;
static int	part = BEFORE;

/* what the entries below go on to */
void	   *failing_calls_real[FUNCTIONS] __attribute__((visibility("hidden")));
void	   *failing_calls_called(long function) __attribute__((visibility("hidden"), used));
extern char failing_calls_entries[] __attribute__((visibility("hidden")));

/*
 * An entry for each function: it says its number and goes on to the function itself, with all of the caller's arguments.  Only for
 * x86-64: the paths of errors are the same elsewhere.
 */
#if defined(__x86_64__)
#define ENTRY_BYTES 16
asm(
	".text\n"
	".balign 16\n"
	"failing_calls_entries:\n"
	".set number, 0\n"
	".rept 900\n"
	".balign 16\n"
	"	pushq $number\n"
	"	jmp failing_calls_common\n"
	".set number, number + 1\n"
	".endr\n"
	".balign 16\n"
	"failing_calls_common:\n"
	"	popq %r11\n"
	"	pushq %rbp\n"
	"	movq %rsp, %rbp\n"
	"	andq $-16, %rsp\n"
	"	subq $192, %rsp\n"
	"	movq %rdi, 0(%rsp)\n"
	"	movq %rsi, 8(%rsp)\n"
	"	movq %rdx, 16(%rsp)\n"
	"	movq %rcx, 24(%rsp)\n"
	"	movq %r8, 32(%rsp)\n"
	"	movq %r9, 40(%rsp)\n"
	"	movq %rax, 48(%rsp)\n"
	"	movaps %xmm0, 64(%rsp)\n"
	"	movaps %xmm1, 80(%rsp)\n"
	"	movaps %xmm2, 96(%rsp)\n"
	"	movaps %xmm3, 112(%rsp)\n"
	"	movaps %xmm4, 128(%rsp)\n"
	"	movaps %xmm5, 144(%rsp)\n"
	"	movaps %xmm6, 160(%rsp)\n"
	"	movaps %xmm7, 176(%rsp)\n"
	"	movq %r11, %rdi\n"
	"	call failing_calls_called\n"
	"	movq %rax, %r11\n"
	"	movq 0(%rsp), %rdi\n"
	"	movq 8(%rsp), %rsi\n"
	"	movq 16(%rsp), %rdx\n"
	"	movq 24(%rsp), %rcx\n"
	"	movq 32(%rsp), %r8\n"
	"	movq 40(%rsp), %r9\n"
	"	movq 48(%rsp), %rax\n"
	"	movaps 64(%rsp), %xmm0\n"
	"	movaps 80(%rsp), %xmm1\n"
	"	movaps 96(%rsp), %xmm2\n"
	"	movaps 112(%rsp), %xmm3\n"
	"	movaps 128(%rsp), %xmm4\n"
	"	movaps 144(%rsp), %xmm5\n"
	"	movaps 160(%rsp), %xmm6\n"
	"	movaps 176(%rsp), %xmm7\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	"	jmp *%r11\n");
#else
#error "this processor has no entries"
#endif

/* The part that begins with this call. */
static int
part_of(const char *name, int now)
{
	if (strncmp(name, "GetNewRelFileN", 14) == 0)
		return COPY;
	if (now == COPY && strcmp(name, "ConditionalLockRelationOid") == 0)
		return SWITCH;
	return now;
}

static int
part_after(const char *name, int now)
{
	if (now == SWITCH && strcmp(name, "CommitTransactionCommand") == 0)
		return CLEAN_UP;
	if (now == SWITCH && strcmp(name, "AbortCurrentTransaction") == 0)
		return COPY;
	return now;
}

/* Where a call goes on to, unless it fails. */
void *
failing_calls_called(long function)
{
	void	   *real = failing_calls_real[function];
	int			this;

	if (!MyBgworkerEntry || strcmp(MyBgworkerEntry->bgw_type, "pgscale relocation worker") != 0 || CritSectionCount > 0)
		return real;
	this = part = part_of(calls->names[function], part);
	part = part_after(calls->names[function], part);
	calls->counts[function][this]++;
	if (calls->function != function || calls->part != this || calls->hits > 0)
		return real;
	if (calls->left-- > 0)
		return real;
	calls->hits = 1;
	/* what it would have ended goes on */
	part = this == SWITCH ? COPY : this;
	ereport(ERROR, (errcode(calls->sqlstate), errmsg_internal("%s", calls->message)));
	return real;
}

/* Is it a function of the server itself? */
static bool
is_servers(void *address)
{
	Dl_info		where,
				server;
	ElfW(Sym) *symbol = NULL;

	return dladdr1(address, &where, (void **) &symbol, RTLD_DL_SYMENT) != 0 && symbol &&
		ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
		dladdr((void *) BackgroundWorkerUnblockSignals, &server) != 0 && where.dli_fbase == server.dli_fbase;
}

static void
put_in_the_way(void **slot, const char *name)
{
	const long	page = sysconf(_SC_PAGESIZE);
	int			n = calls->n;

	if (n == FUNCTIONS || !*slot || !is_servers(*slot))
		return;
	strlcpy(calls->names[n], name, sizeof(calls->names[n]));
	failing_calls_real[n] = *slot;
	if (mprotect((void *) ((uintptr_t) slot & -page), page, PROT_READ | PROT_WRITE) != 0)
		elog(FATAL, "could not make the table of addresses writable: %m");
	*slot = failing_calls_entries + (size_t) n * ENTRY_BYTES;
	calls->n++;
}

static int
of_library(struct dl_phdr_info *library, size_t size, void *arg)
{
	const char *name = strrchr(library->dlpi_name, '/');
	ElfW(Sym) *symbols = NULL;
	const char *strings = NULL;
	struct
	{
		ElfW(Rela) *first;
		size_t		bytes;
	}			tables[2] = {{NULL, 0}, {NULL, 0}};

	if (!name || strcmp(name, "/pgscale.so") != 0)
		return 0;
	for (int i = 0; i < library->dlpi_phnum; i++)
	{
		if (library->dlpi_phdr[i].p_type != PT_DYNAMIC)
			continue;
		for (ElfW(Dyn) *d = (ElfW(Dyn) *) (library->dlpi_addr + library->dlpi_phdr[i].p_vaddr); d->d_tag != DT_NULL; d++)
		{
			if (d->d_tag == DT_SYMTAB)
				symbols = (ElfW(Sym) *) d->d_un.d_ptr;
			else if (d->d_tag == DT_STRTAB)
				strings = (const char *) d->d_un.d_ptr;
			else if (d->d_tag == DT_RELA)
				tables[0].first = (ElfW(Rela) *) d->d_un.d_ptr;
			else if (d->d_tag == DT_RELASZ)
				tables[0].bytes = d->d_un.d_val;
			else if (d->d_tag == DT_JMPREL)
				tables[1].first = (ElfW(Rela) *) d->d_un.d_ptr;
			else if (d->d_tag == DT_PLTRELSZ)
				tables[1].bytes = d->d_un.d_val;
		}
	}
	for (int t = 0; t < 2; t++)
		for (size_t i = 0; i < tables[t].bytes / sizeof(ElfW(Rela)); i++)
		{
			const ElfW(Rela) *rela = &tables[t].first[i];
			const int	type = ELF64_R_TYPE(rela->r_info);

			if (type == R_X86_64_GLOB_DAT || type == R_X86_64_JUMP_SLOT)
				put_in_the_way((void **) (library->dlpi_addr + rela->r_offset),
							   strings + symbols[ELF64_R_SYM(rela->r_info)].st_name);
		}
	return 1;
}

void
_PG_init(void)
{
	const char *path = getenv("FAILING_CALLS");
	int			fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;

	if (fd < 0 || ftruncate(fd, sizeof(struct calls)) != 0 ||
		(calls = mmap(NULL, sizeof(struct calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		elog(FATAL, "could not map the calls: %m");
	close(fd);
	memset(calls, 0, sizeof(struct calls));
	calls->function = -1;
	if (dl_iterate_phdr(of_library, NULL) != 1 || calls->n == 0)
		elog(FATAL, "pgscale's calls were not found");
}
